package coordinator

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/placement"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
)

// Coordinator is the actor that decides.
//
//	records, members, Report, Depart ──soon──▶ decide: Strategy.Target ──▶ order: plan ──▶ Order
type Coordinator struct {
	env    Env
	g      singleton.Guarded
	system *actor.ActorSystem
	self   *actor.PID
	gone   atomic.Bool
	log    *zap.Logger

	stage    stage
	moved    bool // leases of shards were taken, and are seen to be free only in a moment
	ledger   ledger
	wake     actors.Alarm // until it decides again
	question *question    // that the strategy has not answered yet
	changed  bool         // something has, since it was asked
	failing  bool         // it did not answer the last time
	still    *still       // nil: there may be something to do
	moves    atomic.Pointer[[]inquiry.Move]
}

// stage is what a Coordinator may order by what it knows.
type stage uint8

const (
	unprepared stage = iota // nothing: nodes, or shards, may count by another number
	agreed                  // moves of shards that live: what is remembered is theirs already
	arranged                // all
)

// decideSoon is how long changes are gathered.
const decideSoon = 5 * time.Millisecond

// decideEvery is the pause after which the strategy is asked again though nothing
// has changed that the Coordinator knows of, unless its answer would be the same.
const decideEvery = time.Second

// New makes a Coordinator, to be the child of a singleton.
func New(env Env) *Coordinator {
	c := &Coordinator{env: env, log: env.Log, ledger: newLedger(env.Settings)}
	c.moves.Store(new([]inquiry.Move))
	return c
}

// Changed tells it that the Table, or the members, have changed.
func (c *Coordinator) Changed() { c.Tell(func() { c.soon(decideSoon) }) }

// PeerGone tells it that the link to an address broke.
func (c *Coordinator) PeerGone(address string) { c.Tell(func() { c.onPeerGone(address) }) }

// Tell sends it a message of a node, a wire.Report or a wire.Depart, or a function to run in its
// turn, until it has ended.
func (c *Coordinator) Tell(msg any) {
	if !c.gone.Load() {
		outlet.Tell(c.system, c.self, msg)
	}
}

// Receive implements actor.Actor.
func (c *Coordinator) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		c.begin(ctx)
	case *actor.Stopping:
		c.gone.Store(true)
		c.env.Present.CompareAndSwap(c, nil)
		c.wake.Stop()
	case func():
		msg()
	case *wire.Report:
		c.onReport(msg)
	case *wire.Depart:
		c.onLeave(msg)
	}
}

func (c *Coordinator) begin(ctx actor.Context) {
	c.g, _ = singleton.Of(ctx)
	c.system, c.self = ctx.ActorSystem(), ctx.Self()
	c.ledger.restart(c.now())
	c.env.Present.Store(c)
	c.log.Info("coordinating", zap.Uint64("token", uint64(c.g.Token())))
	c.emit(Began, nil)
	c.prepare()
}

func (c *Coordinator) emit(what What, why error) { c.env.Emit(what, c.g.Token(), why) }

// prepare has what must be so before a shard is assigned made so. The store of what is
// remembered may take its time, and no planned move waits for it.
func (c *Coordinator) prepare() {
	ctx := c.g.Context()
	reach := func(s stage, err error) { c.Tell(func() { c.onPrepared(s, err) }) }
	c.env.Go(func() {
		held, err := unprepared, c.env.Agree(ctx)
		if err == nil {
			held = agreed
			reach(agreed, nil)
			err = c.env.Arrange(ctx, func() {
				held = unprepared
				reach(unprepared, nil)
			})
		}
		if err == nil {
			held = arranged
		}
		reach(held, err)
	})
}

// onPrepared: it has come to a stage; with an error it goes no further for now.
func (c *Coordinator) onPrepared(s stage, err error) {
	c.stage = s
	switch {
	case err == nil && s == unprepared:
		c.moved = true
	case c.moved && s == agreed:
		c.stage = unprepared // what it took is seen as shards that live
	case c.moved && s == arranged:
		c.moved = false
		c.ledger.restart(c.now())
	}
	if err == nil {
		c.still = nil
		c.soon(0)
		return
	}
	c.emit(Unprepared, err)
	c.env.Clock.AfterFunc(time.Second, func() {
		c.Tell(func() {
			if c.g.CheckAlive() {
				c.prepare()
			}
		})
	})
}

func (c *Coordinator) now() time.Duration { return c.env.Clock.Now().Mono }

// present is what is known of the hosts.
func (c *Coordinator) present() known {
	now := c.env.Clock.Now()
	return known{now: now.Mono, at: time.Unix(0, now.Wall), arranged: c.stage == arranged, members: c.env.Members().Members, hosts: c.env.Table.Participants(true)}
}

// known is what there is to decide on.
func (c *Coordinator) known() known {
	k := c.present()
	k.seats, k.version = c.env.Table.Seats()
	return k
}

// soon decides after d, or earlier if that is due anyway.
func (c *Coordinator) soon(d time.Duration) {
	now := c.now()
	c.wake.SetBy(c.env.Clock, func(f func()) { c.Tell(f) }, now, now+d, c.decide)
}

// inCharge reports whether it may decide at this moment.
func (c *Coordinator) inCharge() bool { return c.stage > unprepared && c.g.CheckAlive() }

// decide gives the next orders.
func (c *Coordinator) decide() {
	if !c.inCharge() {
		return
	}
	select {
	case <-c.env.Table.Ready():
	default:
		return // its completion is a change
	}
	switch q, now := c.question, c.now(); {
	case q == nil && c.unchanged():
		if _, constant := c.env.Strategy.(placement.Balanced); !constant { // a user's may ask elsewhere
			c.ask(c.still.view, c.still.version, now)
		}
	case q == nil:
		k := c.known()
		c.ask(c.ledger.view(k), k.version, now)
	case now >= q.until:
		v := c.ledger.view(c.known())
		c.order(v, c.without(v, errNoAnswer))
	default:
		c.changed = true
	}
	c.soon(decideEvery)
}

// still is what the last decision rested on, if it left nothing to be done: there may be very
// many shards, and while nothing changes they need not be looked at.
type still struct {
	view    placement.View
	version uint64 // of the Table
	target  []string
}

// unchanged reports whether the last decision left nothing to be done, and rested on what is
// so now.
func (c *Coordinator) unchanged() bool {
	return c.still != nil && c.still.version == c.env.Table.Version() && !c.ledger.waits() &&
		reflect.DeepEqual(c.still.view.Hosts, c.ledger.view(c.present()).Hosts)
}

// order gives the next orders that lead to a target, which is about the shards as they
// were asked about. It returns what was decided, and on which version of the Table.
func (c *Coordinator) order(asked placement.View, target []string) (decision, uint64) {
	k := c.known()
	c.still = nil
	d := c.ledger.decide(k, asked, target)
	for _, o := range d.late {
		c.log.Warn("an order took too long, and is given again", zap.Int("shard", o.Shard), zap.String("to", o.To))
	}
	if d.wake > 0 {
		c.soon(time.Duration(d.wake))
	}
	c.tellMoves(k)
	c.give(d.orders, k)
	return d, k.version
}

// give sends orders, while this node may give any.
func (c *Coordinator) give(orders []Order, k known) {
	nodes := k.owners()
	for _, m := range messages(orders, k) {
		m.Type, m.From, m.Coordinator, m.Shards = c.env.Type, c.env.Self, uint64(c.g.Token()), uint32(c.env.Shards)
		if c.g.CheckAlive() {
			c.env.Send(nodes[m.To].Address, m)
		}
	}
}

// Moves returns those that are not known to have ended, by shard. Any goroutine may call it.
func (c *Coordinator) Moves() []inquiry.Move { return *c.moves.Load() }

// tellMoves has Moves return what is under way now.
func (c *Coordinator) tellMoves(k known) {
	all := c.ledger.moves(k.owners())
	c.moves.Store(&all)
}

// onReport frees the orders that came to nothing.
func (c *Coordinator) onReport(m *wire.Report) {
	if len(m.Failures) == 0 {
		c.still = nil
		c.soon(0) // Reconsider
		return
	}
	if m.Coordinator != uint64(c.g.Token()) || m.Type != c.env.Type {
		return
	}
	for _, f := range m.Failures {
		if c.env.Table.Here(m.From) && c.ledger.failed(int(f.Shard), m.From.GetIncarnation(), c.now()) {
			c.log.Info("an order came to nothing", zap.Uint32("shard", f.Shard), zap.String("peer", m.From.GetAddress()),
				zap.String("why", f.Reason))
		}
	}
	c.tellMoves(c.present())
	c.soon(cooling)
}

// onPeerGone gives orders again that may have been lost with a link: to a
// node that has just come back at the address of one that died, above all.
func (c *Coordinator) onPeerGone(address string) {
	if c.inCharge() {
		k := c.known()
		c.give(c.ledger.again(k, address), k)
	}
}

func (c *Coordinator) onLeave(m *wire.Depart) {
	if m.Type != c.env.Type || !c.env.Table.Here(m.From) {
		return
	}
	if c.ledger.leaves(m.From.Incarnation, m.Back, c.now()) {
		c.soon(0)
	}
	if !m.Back && c.inCharge() && !c.ledger.anyTakes(c.present()) {
		c.env.Send(m.From.Address, &wire.Stranded{Type: c.env.Type, From: c.env.Self, Coordinator: uint64(c.g.Token())})
	}
}

// Leadership is the source of leadership that Coordinators follow: the group's leader,
// as long as it hosts the type; else who has hosted it for the longest time, so
// that a leader which knows nothing of the type leaves it without a Coordinator
// for no moment. Safe for concurrent use.
type Leadership struct {
	*membership.Static
	table *directory.Table

	mu     sync.Mutex
	leader lease.Owner // of the group
}

// NewLeadership makes one of the node self.
func NewLeadership(self lease.Owner, table *directory.Table) *Leadership {
	return &Leadership{Static: membership.NewStatic(self), table: table}
}

// Led takes up who leads the group.
func (l *Leadership) Led(ch membership.LeaderChanged) {
	l.mu.Lock()
	l.leader = ch.Leader
	l.mu.Unlock()
	l.Noticed()
}

// Noticed takes up a change of who takes part.
func (l *Leadership) Noticed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var next lease.Owner
	for i, g := range l.table.Participants(true) {
		if i == 0 || g.Owner.Incarnation == l.leader.Incarnation {
			next = g.Owner
		}
	}
	l.Set(next)
}

// Env is what a Coordinator has of the node it runs on: what it knows, how it acts, and what
// it was set. All of it may be used from any goroutine.
type Env struct {
	Table   *directory.Table
	Members func() membership.Snapshot
	Clock   store.Clock
	// Send sends to the Region at an address. It does not block.
	Send func(address string, msg any)
	// Emit tells what became of the Coordinator under a token.
	Emit func(What, lease.Token, error)
	// Agree returns when all that live agree on the number of shards: those that live may be
	// moved. After an error, of either, it is called again in a second.
	Agree func(context.Context) error
	// Arrange returns when what is remembered is where that number wants it: shards that are
	// free may be assigned. It calls moving before it takes leases of shards for that.
	Arrange func(ctx context.Context, moving func()) error
	// Go runs what the node waits for when it ends.
	Go func(func())
	// Present holds the Coordinator that is in charge here, if one is.
	Present *atomic.Pointer[Coordinator]
	// Asked is set while the strategy of this node is asked: it may outlive a Coordinator.
	Asked *atomic.Bool
	Log   *zap.Logger

	Type   string // its key: directory.Names
	Shards int
	Self   *wire.Node
	Settings
}

// Settings are what users say of coordinating.
type Settings struct {
	Strategy placement.Strategy
	Limits   placement.MoveLimits // complete
	// Settle is how long hosts must be the same before shards that live are moved, and Stop
	// how long entities have to stop.
	Settle, Stop time.Duration
}

// What a Coordinator has to tell.
type What uint8

const (
	Began          What = iota // it is in charge
	Unprepared                 // Agree failed, or Arrange: no free shard is assigned
	StrategyFailed             // told once for each time that the strategy begins to fail
)
