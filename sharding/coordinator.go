package sharding

import (
	"cmp"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/outside"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/placement"
	"github.com/holdfast-go/holdfast/singleton"
)

// coordinator decides which node hosts which shard: the child of a singleton, so
// that there is one, and so that nothing reaches it, no timer and no event, once
// its lease is lost. What it knows are the records, as every node knows them; what
// it decides becomes true only as the leases move. Its own state is about orders
// under way, and a new coordinator does without it.
//
//	records, members, Report, Depart ──soon──▶ decide: Strategy.Target ──▶ order: Plan ──▶ Order
type coordinator struct {
	r    *Region
	g    singleton.Guarded
	self *actor.PID
	gone atomic.Bool
	log  *zap.Logger

	checked  bool                      // all that live agree on the number of shards
	hosts    []string                  // the incarnations, as last seen
	since    time.Duration             // since when they are these
	grace    bool                      // free shards have been assigned once
	underWay map[int]underWay          // by shard
	resting  map[int]time.Duration     // shards whose last order failed, until when
	leaving  map[string]time.Duration  // incarnations that give up what they have, as last said
	shunned  map[string]time.Duration  // incarnations that did not take what they were to, until when
	refused  map[placing]time.Duration // what nodes said no to, until when it counts
	wakeAt   time.Duration
	wake     lease.Timer
	number   int
	question *question // that the strategy has not answered yet
	changed  bool      // something has, since it was asked
	failing  bool      // it did not answer the last time
}

// underWay is an order that was given.
type underWay struct {
	placement.Order
	by    lease.Token // decided on
	until time.Duration
}

// placing is a shard on a node.
type placing struct {
	shard int
	on    string // incarnation
}

// What the coordinator tells itself.
type (
	tableChanged struct{}
	decideDue    struct{ number int }
	countChecked struct {
		err   error
		moved bool // what is remembered was moved to other shards
	}
)

// decideSoon is how long changes are gathered.
const decideSoon = 5 * time.Millisecond

// restAfter is the pause before a shard whose order failed is ordered again.
const restAfter = 300 * time.Millisecond

// shunFor is how long a node that did not take over a shard that lives, or gave no
// answer, is given none that needs a host now; and one that refused a free shard not
// that one.
const shunFor = 3 * time.Second

// hostWithin is how long a node may take to host a shard that is free.
const hostWithin = 3 * time.Second

// decideEvery is the pause after which the strategy is asked again though nothing
// has changed that the coordinator knows of.
const decideEvery = time.Second

// leavingFor is how long a node counts as leaving after it last said so.
const leavingFor = 3 * departEvery

func newCoordinator(r *Region) actor.Actor {
	return &coordinator{r: r, log: r.log, underWay: map[int]underWay{}, resting: map[int]time.Duration{},
		leaving: map[string]time.Duration{},
		shunned: map[string]time.Duration{}, refused: map[placing]time.Duration{}}
}

// tell posts to the coordinator from anywhere, until it has ended.
func (c *coordinator) tell(msg any) {
	if !c.gone.Load() {
		outside.Tell(c.r.system, c.self, msg)
	}
}

// Receive implements actor.Actor.
func (c *coordinator) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		c.begin(ctx)
	case *actor.Stopping:
		c.gone.Store(true)
		c.r.coordinator.CompareAndSwap(c, nil)
		halt(c.wake)
	case *tableChanged:
		c.soon(decideSoon)
	case *countChecked:
		c.onCount(msg)
	case *answered:
		c.onAnswer(msg)
	case *decideDue:
		if msg.number == c.number {
			c.wake = nil
			c.decide()
		}
	case *wire.Report:
		c.onReport(msg)
	case *wire.Depart:
		c.onDepart(msg)
	case *peerGone:
		c.onPeerGone(msg.address)
	}
}

func (c *coordinator) begin(ctx actor.Context) {
	g, ok := singleton.Of(ctx)
	if !ok {
		c.log.Error("the coordinator is no singleton")
		return
	}
	c.g, c.self, c.since = g, ctx.Self(), c.now()
	c.r.coordinator.Store(c)
	c.log.Info("coordinating", zap.Uint64("token", uint64(g.Token())))
	c.r.event(Event{Kind: Coordinating, Shard: -1, Token: g.Token()})
	c.r.moves.add(Move{Shard: -1, What: Coordinating, Token: g.Token(), At: c.r.now()})
	c.check()
}

// check finds out whether all that live agree on the number of shards: the nodes
// first, then the shards. A node that is not registered any more takes up none, so
// that what is found of its shards is all there is. Then it has what is remembered
// where this number wants it.
func (c *coordinator) check() {
	c.r.ops.Go(func() {
		err, moved := c.r.agree(c.g.Context()), false
		if err == nil {
			moved, err = c.r.arrange(c.g.Context())
		}
		c.tell(&countChecked{err, moved})
	})
}

func (c *coordinator) onCount(msg *countChecked) {
	err := msg.err
	if err == nil {
		c.checked = true
		if msg.moved {
			c.since = c.now() // the leases it took are seen to be free only in a moment
		}
		c.soon(0)
		return
	}
	if errors.Is(err, ErrShardCount) {
		c.log.Error("no shard is assigned", zap.Error(err))
		c.r.event(Event{Kind: CountMismatch, Shard: -1, Token: c.g.Token(), Reason: err})
	} else {
		c.log.Warn("the records, or what is remembered, could not be read or moved", zap.Error(err))
	}
	c.r.clock.AfterFunc(time.Second, func() {
		if c.g.CheckAlive() {
			c.check()
		}
	})
}

func (c *coordinator) now() time.Duration { return c.r.clock.Now().Mono }

// soon decides after d, or earlier if that is due anyway.
func (c *coordinator) soon(d time.Duration) {
	at := c.now() + d
	if c.wake != nil && c.wakeAt <= at {
		return
	}
	halt(c.wake)
	c.number++
	n := c.number
	c.wakeAt = at
	c.wake = c.r.clock.AfterFunc(d, func() { c.tell(&decideDue{n}) })
}

// onReport frees the orders that came to nothing.
func (c *coordinator) onReport(m *wire.Report) {
	if len(m.Failures) == 0 {
		c.soon(0) // Reconsider
		return
	}
	if m.Coordinator != uint64(c.g.Token()) || m.Type != c.r.names.Key {
		return
	}
	for _, f := range m.Failures {
		o, ok := c.underWay[int(f.Shard)]
		if !ok || m.From.GetIncarnation() != executor(o.Order) || !c.r.table.Here(m.From) {
			continue
		}
		delete(c.underWay, int(f.Shard))
		c.resting[int(f.Shard)] = c.now() + restAfter
		if o.From != "" {
			c.shunned[o.To] = c.now() + shunFor
		} else {
			c.refused[placing{o.Shard, o.To}] = c.now() + shunFor
		}
		c.log.Info("an order came to nothing", zap.Uint32("shard", f.Shard), zap.String("node", m.From.GetAddress()),
			zap.String("why", f.Reason))
	}
	c.soon(restAfter)
}

// onPeerGone gives orders anew that may have been lost with a link: to a
// node that has just come back at the address of one that died, above all. Who has
// taken one already is not troubled by another. They are due when they were.
func (c *coordinator) onPeerGone(address string) {
	if !c.checked || !c.g.CheckAlive() {
		return
	}
	at := map[string]bool{}
	for _, g := range c.r.table.Participants(true) {
		at[g.Owner.Incarnation] = g.Owner.Address == address
	}
	now, seats := c.now(), c.r.table.Seats()
	var orders []placement.Order
	given := map[int]underWay{}
	for i, o := range c.underWay {
		free := o.From == "" && at[o.To] && seats[i].Owner == ""
		move := o.From != "" && at[o.From] && seats[i].Owner == o.From
		if (free || move) && now < o.until {
			orders, given[i] = append(orders, o.Order), o
		}
	}
	slices.SortFunc(orders, func(a, b placement.Order) int { return cmp.Compare(a.Shard, b.Shard) })
	c.give(orders, seats, now)
	for i, o := range given {
		u := c.underWay[i]
		u.until = o.until
		c.underWay[i] = u
	}
}

// executor is the incarnation that an order goes to.
func executor(o placement.Order) string {
	if o.From != "" {
		return o.From
	}
	return o.To
}

func (c *coordinator) onDepart(m *wire.Depart) {
	if m.Type != c.r.names.Key || !c.r.table.Here(m.From) {
		return
	}
	_, known := c.leaving[m.From.Incarnation]
	if m.Back {
		delete(c.leaving, m.From.Incarnation)
	} else {
		c.leaving[m.From.Incarnation] = c.now() + leavingFor
	}
	if known == m.Back {
		c.soon(0)
	}
	if !m.Back && c.checked && c.g.CheckAlive() && !slices.ContainsFunc(c.view(nil).Hosts,
		func(h placement.Host) bool { return h.Takes() > 0 }) {
		c.r.send(m.From.Address, &wire.Stranded{Type: c.r.names.Key, From: c.r.self, Coordinator: uint64(c.g.Token())})
	}
}
