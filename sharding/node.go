package sharding

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.opentelemetry.io/otel/attribute"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/fastpath"
	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/internal/meters"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/traces"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
	"github.com/holdfast-go/holdfast/store"
)

// node is what the parts of a Region share: what they are for, the node they are on, and how
// they tell of what happens.
type node struct {
	typ     Type
	set     settings
	system  *actor.ActorSystem
	group   *membership.Group
	keeper  *lease.Keeper
	log     *zap.Logger
	names   directory.Names
	self    *wire.Node
	payload int        // bound of a message between nodes
	pid     *actor.PID // the front door
	table   *directory.Table
	inbox   inbox // the control loop's
	over    atomic.Bool
	ttl     atomic.Int64 // of its leases, as far as is known
	others  atomic.Value // of []*wire.Node: the other nodes by the last list of members
	short   fastpath.Sender
	span
	counts tally
	crowd  crowd
}

// span is how long the parts of a Region work, on the Keeper's clock.
type span struct {
	clock store.Clock
	began time.Duration // for elapsed
	life  context.Context
	end   context.CancelFunc
	ops   sync.WaitGroup
}

// elapsed is the time since a fixed point. It is above 0, which stands for never, though
// the clock may begin anywhere: for programs under testing/synctest it is below.
func (s *span) elapsed() time.Duration { return s.clock.Now().Mono - s.began }

// within returns a context that is done after d on that clock.
func (s *span) within(ctx context.Context, d time.Duration) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	t := s.clock.AfterFunc(d, cancel)
	return ctx, func() { t.Stop(); cancel() }
}

func (s *span) sleep(d time.Duration) {
	ctx, stop := s.within(s.life, d)
	defer stop()
	<-ctx.Done()
}

// tally counts events on this node since Start, and what there is now.
type tally struct {
	dropped, undeliverable, relayed, unordered, overruns, crashes counter

	unconfirmed, passivated, moved atomic.Int64
	waiting, active                atomic.Int64
	hosted                         meters.Counter
	handOff                        meters.Times
	traces                         *traces.Tracer
	draining                       atomic.Bool // this node gives its shards up
	warned                         struct{ undeliverable, crashed, cold, notAcquired, journaled boundary.Line }
}

// counter counts for Info and for the metrics.
type counter struct {
	atomic.Int64
	meter meters.Counter
}

func (c *counter) add(n int) {
	c.Add(int64(n))
	c.meter.Add(int64(n))
}

// crowd is what the entities of all shards share.
type crowd struct {
	props       *actor.Props
	epoch       atomic.Uint32 // counts quarters of the passivation time
	evict       atomic.Bool   // an eviction is asked for
	evictOldest func()
	fails       atomic.Bool   // some do before their first message; whether others work is not known
	pace        chan struct{} // has room for one: the shard that starts remembered entities
}

func (n *node) closed() error { return fmt.Errorf("sharding type %q: %w", n.typ.Name, ErrClosed) }

// leaseTTL is that of this node's leases of the type, as far as is known.
func (n *node) leaseTTL() time.Duration { return cmp.Or(time.Duration(n.ttl.Load()), 10*time.Second) }

// send sends to the Region of another node. Messages to one address stay in order
// while the link lives.
func (n *node) send(address string, msg any) {
	if address == n.self.Address || address == "" { // without remote there is none
		n.post(msg) // not on this goroutine, which may hold a lock
		return
	}
	outlet.Tell(n.system, actor.NewPID(address, n.names.Process), msg)
}

// post queues a message for the control loop, until the Region has ended.
func (n *node) post(msg any) {
	if !n.over.Load() {
		n.inbox.put(msg)
	}
}

// async runs f on a goroutine of its own, and what it returns in a turn of the control loop.
func (n *node) async(f func() func()) { n.ops.Go(func() { n.post(f()) }) }

// later sets an alarm whose function runs in a turn of the control loop.
func (n *node) later(a *actors.Alarm, d time.Duration, f func()) {
	a.Set(n.clock, func(f func()) { n.post(f) }, d, f)
}

func (n *node) options(metadata map[string]string) []lease.Option {
	return append(n.set.leaseOptions[:len(n.set.leaseOptions):len(n.set.leaseOptions)], lease.WithMetadata(metadata))
}

// evictIfMany has the oldest entities stopped if more run than may.
func (n *node) evictIfMany() {
	if m := n.set.maxActive; m > 0 && n.counts.active.Load() > int64(m) && n.crowd.evict.CompareAndSwap(false, true) {
		n.post(n.crowd.evictOldest)
	}
}

// speaksFor reports whether a message is from the owner of a record. The records of a
// node without remote have no address.
func (n *node) speaksFor(from *wire.Node, o lease.Owner) bool {
	return from.Is(wire.NodeOf(o)) || o.Incarnation == n.self.Incarnation && from.Is(n.self)
}

// full reports whether the buffers of this node have reached their bound.
func (n *node) full() bool { return n.counts.waiting.Load() >= int64(n.set.total) }

// reach has f called with the process of an actor of this node; of one that has ended
// there is no word, and no dead letter: subscribers would hear of that on this goroutine.
func (n *node) reach(pid *actor.PID, f func(actor.Process)) {
	if p, ok := n.system.ProcessRegistry.Get(pid); ok {
		_ = boundary.Contained(func() { f(p) })
	}
}

// stopActor stops an actor of this node, unless it has ended.
func (n *node) stopActor(pid *actor.PID) { n.reach(pid, func(p actor.Process) { p.Stop(pid) }) }

func (n *node) event(e Event) {
	e.Group, e.Type = n.group.Name(), n.typ.Name
	name, why := n.names.Coordinator, e.Reason
	if e.Shard >= 0 {
		name = n.names.Shard(e.Shard)
	}
	if e.Panic != nil {
		why = fmt.Errorf("entity %.64q: panic: %v", e.ID, e.Panic)
	}
	now := n.clock.Now()
	keep := e.ID == ""
	if !keep { // of entities that all fail there may be any number
		_, keep = n.counts.warned.journaled.Open(now.Mono)
	}
	if keep {
		n.keeper.Journal().Add(journal.Event{At: time.Unix(0, now.Wall), Kind: e.Kind.String(), Name: name,
			Token: uint64(e.Token), Peer: e.Peer.ID, Took: e.After, Why: why})
	}
	outlet.Of(n.system).Publish(e)
}

// counted notes what a shard's Router counted.
func (n *node) counted(shard, relayed, unordered int) {
	if relayed > 0 {
		n.counts.relayed.add(relayed)
	}
	if unordered > 0 {
		n.counts.unordered.add(unordered)
		n.log.Warn("mail went on before all that was sent the old way was known to have arrived", zap.Int("shard", shard),
			boundary.Do("look at the links and the load of the nodes that it was on"))
		n.event(Event{Kind: OrderNotKept, Shard: shard})
	}
}

// crashed notes that an entity panicked.
func (n *node) crashed(shard int, id string, reason any) {
	n.counts.crashes.add(1)
	n.counts.warned.crashed.Warn(n.log, n.clock.Now().Mono, "an entity panicked", zap.Int("shard", shard), zap.String("id", id), zap.Any("panic", reason))
	n.event(Event{Kind: EntityCrashed, Shard: shard, ID: id, Panic: reason})
}

// undeliverable gives a message up for good, and tells its sender and the dead letters: these without
// the sender, whom protoactor would answer a second time. One that found a buffer full, or was left at
// the end, was dropped.
func (n *node) undeliverable(nack *wire.Nack, sender *actor.PID, msg any) {
	if nack.Reason == wire.Reason_REASON_OVERFLOW {
		n.counts.dropped.add(1)
	} else {
		n.counts.undeliverable.add(1)
		n.counts.warned.undeliverable.Warn(n.log, n.clock.Now().Mono, "undeliverable message", zap.String("name", boundary.Cut(nack.Name)),
			zap.Stringer("reason", hosting.Reason(nack.Reason)), zap.String("type", boundary.Cut(nack.Type)),
			zap.String("detail", nack.Detail))
	}
	if sender != nil {
		outlet.Tell(n.system, sender, nack)
	}
	if msg != nil {
		outlet.Of(n.system).Undeliverable(int32(nack.Reason), n.pid, msg)
	}
}

func (n *node) deadLetter(pid *actor.PID, msg any) { outlet.Of(n.system).DeadLetter(pid, msg) }

// measure makes the metrics, which carry holdfast.node and holdfast.type. stop ends what observes.
func (n *node) measure() (stop func(), err error) {
	c := &n.counts
	m := meters.New(n.keeper.MeterProvider(), "sharding", attribute.String("holdfast.node", n.keeper.Owner().ID),
		attribute.String("holdfast.type", n.typ.Name))
	entities := m.ObservedUpDown("entities", "Entities that run on this node.", c.active.Load)
	waiting := m.ObservedUpDown("waiting",
		"Messages that wait on this node for a host or for an entity to start, or to be taken up.", c.waiting.Load)
	unconfirmed := m.ObservedCounter("unconfirmed",
		"Messages that are not known to have arrived when their link broke.", c.unconfirmed.Load)
	c.traces = traces.New(n.keeper.TracerProvider(), "sharding")
	c.hosted = m.UpDown("hosted", "Shards whose entities may run on this node.")
	c.dropped.meter = m.Counter("dropped", "Messages that found a buffer full, or were left when a Region ended.")
	c.undeliverable.meter = m.Counter("undeliverable", "Messages that could not be encoded, decoded or routed.")
	c.relayed.meter = m.Counter("relayed", "Messages that were forwarded for others, each kept until it was taken up.")
	c.unordered.meter = m.Counter("unordered", "Moves after which the order of messages was not guaranteed.")
	c.overruns.meter = m.Counter("overruns", "Handlers that were running when their shard was lost.")
	c.crashes.meter = m.Counter("crashes", "Entities that panicked.")
	c.handOff = m.Times("handoff",
		"Planned moves of shards, from the entities being told to stop until the lease was transferred.")
	stop = m.Observe(entities, waiting, unconfirmed)
	return stop, m.Err()
}

// inbox is what the control loop has to do, in order. It is no actor's mailbox: no other code can
// end the loop, or put anything into it.
type inbox struct {
	mu    sync.Mutex
	mail  []any
	ready chan struct{} // has room for one
}

func (b *inbox) put(msg any) {
	b.mu.Lock()
	b.mail = append(b.mail, msg)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

func (b *inbox) take() (mail []any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	mail, b.mail = b.mail, nil
	return mail
}

// noActor is what processes have in common that stand for no actor.
type noActor struct{ *node }

// SendSystemMessage implements actor.Process: a watcher learns that there is
// none.
func (p noActor) SendSystemMessage(pid *actor.PID, message any) {
	outlet.Of(p.system).DeadSignal(pid, message)
}

// Stop implements actor.Process: it can't be stopped.
func (noActor) Stop(*actor.PID) {}
