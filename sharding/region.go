package sharding

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
	"go.opentelemetry.io/otel/attribute"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/fastpath"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/internal/meters"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding/internal/coordinator"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
)

// What calls what in a Region:
//
//	Tell, Ask, Ref ──────▶ Region ──entity active here─────────────────────▶ its gate
//	                          │  └─▶ shard: Router (internal/route) ─▶ entry ─▶ its gate
//	other nodes ─▶ frontDoor ─┘         │                                │ starts, stops, takes mail back:
//	other nodes ◀─ internal/transport ◀─┘ (the short way)                │ internal/entities, guardian
//	control loop ─▶ handover.Machine ─▶ hosting, hand-over, states                ▼
//	   ▲  ▲                                                 guardian: parent of a shard's entities
//	   │  └ Order ◀── internal/coordinator ──▶ the user's Strategy, beside it all
//	   │                      ▲
//	   └ internal/directory: Table ◀── Keeper.Watch
//
// Mail passes under a shard's lock, on the goroutine that brings it. Mail to other nodes, to the
// dead letters and back to senders leaves when the lock is free. The control loop alone decides
// about shards. A file uses only declarations of the files below it; internal/doccheck has their
// order.

// Region is one node's part in a Type: it hosts some of the shards, and routes mail for entities
// of the others. Safe for concurrent use, but code that runs on a sender's goroutine (a codec, a
// mailbox's producer) must not call it.
type Region struct {
	typ     Type
	set     settings
	system  *actor.ActorSystem
	group   *membership.Group
	keeper  *lease.Keeper
	clock   store.Clock
	log     *zap.Logger
	names   directory.Names
	self    *wire.Node
	hosts   bool
	props   *actor.Props // of entities
	payload int          // bound of a message between nodes
	metrics *instruments

	pid     *actor.PID // the front door
	control inbox
	loop    *controller
	ended   chan struct{} // closed when the control loop has
	shards  []shard
	byName  map[string]*shard
	table   *directory.Table

	regionLease *lease.Handle
	manager     *singleton.Manager // of the coordinator
	coordinator atomic.Pointer[coordinator.Coordinator]
	leadership  *coordinator.Leadership

	ttl      atomic.Int64  // of its leases, as far as is known
	epoch    atomic.Uint32 // counts quarters of the passivation time
	waiting  atomic.Int64
	others   atomic.Pointer[[]*wire.Node] // the other nodes by the last list of members
	active   atomic.Int64
	evict    atomic.Bool // an eviction is asked for
	asked    atomic.Bool // the strategy is, and has not answered
	counts   tally
	warned   boundary.Line // of undeliverable messages
	over     atomic.Bool
	admitted atomic.Bool   // Start has succeeded: shards may be hosted
	refs     actor.Process // of all Refs
	short    fastpath.Sender

	fails        atomic.Bool // entities do before their first message; whether others work is not known
	surveyNumber atomic.Uint64
	asking       sync.Map      // by number: statusRequest
	pace         chan struct{} // has room for one: the shard that starts remembered entities

	began    time.Duration // for elapsed
	life     context.Context
	end      context.CancelFunc
	part     context.Context // while this node takes part
	withdraw context.CancelFunc
	ops      sync.WaitGroup
	cleanUp  []func()
	done     chan struct{}
}

// tally counts events on this node since Start.
type tally struct {
	dropped, undeliverable, unconfirmed, relayed, unordered, overruns, crashes, passivated, moved atomic.Int64
}

// errUnmade is the answer of a Region that Start did not make.
var errUnmade = fmt.Errorf("sharding: region: %w: nil or the zero value, must come from sharding.Start", lease.ErrInvalid)

func (r *Region) made() bool { return r != nil && r.system != nil }

// may checks the Region and ctx, for calls that take a context.
func (r *Region) may(ctx context.Context) error {
	if !r.made() {
		return errUnmade
	}
	if err := input.Context(ctx, lease.ErrInvalid); err != nil {
		return fmt.Errorf("sharding type %q: %w", r.typ.Name, err)
	}
	return nil
}

func (r *Region) closed() error { return fmt.Errorf("sharding type %q: %w", r.typ.Name, ErrClosed) }

// leaseTTL is that of this node's leases of the type, as far as is known.
func (r *Region) leaseTTL() time.Duration {
	if t := r.ttl.Load(); t > 0 {
		return time.Duration(t)
	}
	return 10 * time.Second
}

// elapsed is the time since a fixed point. It is above 0, which stands for never, though
// the clock may begin anywhere: for programs under testing/synctest it is below.
func (r *Region) elapsed() time.Duration {
	return r.clock.Now().Mono - r.began
}

// send sends to the Region of another node. Messages to one address stay in order
// while the link lives.
func (r *Region) send(address string, msg any) {
	if address == r.self.Address || address == "" { // without remote there is none
		r.post(msg) // not on this goroutine, which may hold a lock
		return
	}
	outlet.Tell(r.system, actor.NewPID(address, r.names.Process), msg)
}

// post queues a message for the control loop, until the Region has ended.
func (r *Region) post(msg any) {
	if r.made() && !r.over.Load() {
		r.control.put(msg)
	}
}

// Type returns what the Region was started for.
func (r *Region) Type() Type { return r.typ }

// onEnd has f called when the Region ends; the last first.
func (r *Region) onEnd(f func()) { r.cleanUp = append(r.cleanUp, f) }

func (r *Region) clean() {
	for i := len(r.cleanUp) - 1; i >= 0; i-- {
		r.cleanUp[i]()
	}
	r.cleanUp = nil
}

// sleep waits on the Keeper's clock.
func (r *Region) sleep(d time.Duration) {
	ch := make(chan struct{})
	defer r.clock.AfterFunc(d, func() { close(ch) }).Stop()
	select {
	case <-ch:
	case <-r.life.Done():
	}
}

func (r *Region) options(metadata map[string]string) []lease.Option {
	return append(r.set.leaseOptions[:len(r.set.leaseOptions):len(r.set.leaseOptions)], lease.WithMetadata(metadata))
}

func (r *Region) regionName() string {
	name, _ := r.names.Region(r.keeper.Owner()) // the group has checked the owner
	return name
}

func (r *Region) event(e Event) {
	e.Group, e.Type = r.group.Name(), r.typ.Name
	outlet.Of(r.system).Publish(e)
}

// mayHost reports whether this node may host at all: it is a member, and is
// registered for the type.
func (r *Region) mayHost() bool { return r.whyNot() == nil }

// errStarting is why a node takes no shard before its Start has succeeded.
var errStarting = errors.New("the node is starting")

func (r *Region) whyNot() error {
	if !r.admitted.Load() {
		return errStarting
	}
	if _, ok := r.group.Term(); !ok {
		return ErrNotHosting
	}
	if t, ok := r.regionLease.Term(); !ok || !t.CheckAlive() {
		return ErrNotHosting
	}
	return nil
}

// coordinating has f called with the coordinator that is in charge on this node, if one is.
func (r *Region) coordinating(f func(*coordinator.Coordinator)) {
	if c := r.coordinator.Load(); c != nil {
		f(c)
	}
}

// registry is what an actor system knows of its Regions: by names.Key.
type registry struct{ sync.Map }

var registryID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*registry) ExtensionID() extensions.ExtensionID { return registryID }

func registryOf(system *actor.ActorSystem) *registry {
	return actors.Extension(system, registryID, func() *registry { return &registry{} })
}

// instruments are a Region's metrics. They carry holdfast.node and holdfast.type.
type instruments struct {
	hosted, dropped, undeliverable, relayed, unordered, overruns, crashes meters.Counter
	handOff                                                               meters.Times
}

func newInstruments(r *Region) (*instruments, error) {
	m := meters.New(r.set.meters, "sharding", attribute.String("holdfast.node", r.keeper.Owner().ID),
		attribute.String("holdfast.type", r.typ.Name))
	entities := m.ObservedUpDown("entities", "Entities that run on this node.", r.active.Load)
	waiting := m.ObservedUpDown("waiting",
		"Messages that wait on this node for a host or for an entity to start, or to be taken up.", r.waiting.Load)
	unconfirmed := m.ObservedCounter("unconfirmed",
		"Messages that are not known to have arrived when their link broke.", r.counts.unconfirmed.Load)
	i := &instruments{
		hosted:        m.UpDown("hosted", "Shards whose entities may run on this node."),
		dropped:       m.Counter("dropped", "Messages that found a buffer full, or were left when a Region ended."),
		undeliverable: m.Counter("undeliverable", "Messages that could not be encoded, decoded or routed."),
		relayed:       m.Counter("relayed", "Messages that were forwarded for others, each kept until it was taken up."),
		unordered:     m.Counter("unordered", "Moves after which the order of messages was not guaranteed."),
		overruns:      m.Counter("overruns", "Handlers that were running when their shard was lost."),
		crashes:       m.Counter("crashes", "Entities that panicked."),
		handOff: m.Times("handoff",
			"Planned moves of shards, from the entities being told to stop until the lease was transferred."),
	}
	stop := m.Observe(entities, waiting, unconfirmed)
	if m.Err() == nil {
		r.onEnd(stop)
	}
	return i, m.Err()
}

// counted notes what a shard's Router counted.
func (r *Region) counted(shard, relayed, unordered int) {
	if relayed > 0 {
		r.counts.relayed.Add(int64(relayed))
		r.metrics.relayed.Add(int64(relayed))
	}
	if unordered > 0 {
		r.counts.unordered.Add(int64(unordered))
		r.metrics.unordered.Add(int64(unordered))
		r.log.Warn("mail went on before all that was sent the old way was known to have arrived", zap.Int("shard", shard))
		r.event(Event{Kind: OrderNotKept, Shard: shard})
	}
}

// overran notes handlers that were running when their shard was lost.
func (r *Region) overran(n uint64) {
	if n > 0 {
		r.counts.overruns.Add(int64(n))
		r.metrics.overruns.Add(int64(n))
	}
}

// crashed notes that an entity panicked.
func (r *Region) crashed(shard int, id string, reason any) {
	r.counts.crashes.Add(1)
	r.metrics.crashes.Add(1)
	r.log.Warn("an entity panicked", zap.Int("shard", shard), zap.String("id", id), zap.Any("panic", reason))
	r.event(Event{Kind: EntityCrashed, Shard: shard, ID: id, Panic: reason})
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
