package sharding

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
)

// coordinator decides which node hosts which shard: the child of a singleton, so
// that there is one, and so that nothing reaches it, no timer and no event, once
// its lease is lost. What it knows are the records, as every node knows them; what
// it decides becomes true only as the leases move. Its own state is about orders
// under way, and a new coordinator does without it.
//
//	records, members, Report, Depart ──▶ dirty ──soon──▶ decide: Strategy.Target, Plan ──▶ Order
type coordinator struct {
	r    *Region
	g    singleton.Guarded
	self *actor.PID
	log  *zap.Logger

	checked  bool                     // all that live agree on the number of shards
	began    time.Duration            // when it was in charge
	hosts    []string                 // the incarnations, as last seen
	since    time.Duration            // since when they are these
	grace    bool                     // free shards have been assigned once
	underWay map[int]underWay         // by shard
	resting  map[int]time.Duration    // shards whose last order failed, until when
	leaving  map[string]time.Duration // incarnations that give up what they have, as last said
	shunned  map[string]time.Duration // incarnations that did not take what they were to, until when
	dirty    bool
	wakeAt   time.Duration
	wake     lease.Timer
	number   int
}

// underWay is an order that was given.
type underWay struct {
	Order
	by    lease.Token // decided on
	until time.Duration
}

// What the coordinator tells itself.
type (
	tableChanged struct{}
	decideDue    struct{ number int }
	countChecked struct{ err error }
)

// decideSoon is how long changes are gathered.
const decideSoon = 5 * time.Millisecond

// restAfter is the pause before a shard whose order failed is ordered again.
const restAfter = 300 * time.Millisecond

// shunFor is how long a node that did not take a shard, or gave no answer, is given
// none that needs a host now.
const shunFor = 3 * time.Second

// hostWithin is how long a node may take to host a shard that is free.
const hostWithin = 3 * time.Second

// decideEvery is the pause after which the strategy is asked again though nothing
// has changed that the coordinator knows of.
const decideEvery = time.Second

// leavingFor is how long a node counts as leaving after it last said so.
const leavingFor = 3 * departEvery

func newCoordinator(r *Region) actor.Actor {
	return &coordinator{r: r, log: r.log, underWay: map[int]underWay{}, resting: map[int]time.Duration{}, leaving: map[string]time.Duration{},
		shunned: map[string]time.Duration{}}
}

// tell posts to the coordinator from anywhere.
func (c *coordinator) tell(msg any) { c.r.system.Root.Send(c.self, msg) }

// Receive implements actor.Actor.
func (c *coordinator) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		c.begin(ctx)
	case *actor.Stopping:
		c.r.coordinator.CompareAndSwap(c, nil)
		halt(c.wake)
	case *tableChanged:
		c.soon(decideSoon)
	case *countChecked:
		c.onCount(msg.err)
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
	c.g, c.self, c.began = g, ctx.Self(), c.now()
	c.since = c.began
	c.r.coordinator.Store(c)
	c.log.Info("coordinating", zap.Uint64("token", uint64(g.Token())))
	c.r.event(Event{Kind: Coordinating, Shard: -1, Token: g.Token()})
	c.r.moves.add(Move{Shard: -1, What: Coordinating, Token: g.Token(), At: c.r.now()})
	c.check()
}

// check finds out whether all that live agree on the number of shards: the nodes
// first, then the shards. A node that is not registered any more takes up none, so
// that what is found of its shards is all there is.
func (c *coordinator) check() {
	c.r.ops.Go(func() {
		_, err := c.r.agree(c.g.Context())
		c.tell(&countChecked{err})
	})
}

func (c *coordinator) onCount(err error) {
	if err == nil {
		c.checked = true
		c.soon(0)
		return
	}
	if errors.Is(err, ErrShardCount) {
		c.log.Error("no shard is assigned", zap.Error(err))
		c.r.event(Event{Kind: CountMismatch, Shard: -1, Token: c.g.Token(), Reason: err})
	} else {
		c.log.Warn("the records could not be read", zap.Error(err))
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
	if m.Coordinator != uint64(c.g.Token()) || m.Type != c.r.names.key {
		return
	}
	for _, f := range m.Failures {
		o, ok := c.underWay[int(f.Shard)]
		if !ok || m.From.GetIncarnation() != o.executor() {
			continue
		}
		delete(c.underWay, int(f.Shard))
		c.resting[int(f.Shard)] = c.now() + restAfter
		if o.From != "" {
			c.shunned[o.To] = c.now() + shunFor
		}
		c.log.Info("an order came to nothing", zap.Uint32("shard", f.Shard), zap.String("node", m.From.GetAddress()), zap.String("why", f.Reason))
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
	for _, g := range c.r.table.participants(true) {
		at[g.owner.Incarnation] = g.owner.Address == address
	}
	now, standings := c.now(), c.r.table.all()
	var orders []Order
	given := map[int]underWay{}
	for i, o := range c.underWay {
		free := o.From == "" && at[o.To] && !standings[i].held
		move := o.From != "" && at[o.From] && standings[i].held && standings[i].rec.Owner.Incarnation == o.From
		if (free || move) && now < o.until {
			orders, given[i] = append(orders, o.Order), o
		}
	}
	slices.SortFunc(orders, func(a, b Order) int { return cmp.Compare(a.Shard, b.Shard) })
	c.give(orders, standings, View{}, now)
	for i, o := range given {
		u := c.underWay[i]
		u.until = o.until
		c.underWay[i] = u
	}
}

// executor is the incarnation that an order goes to.
func (o Order) executor() string {
	if o.From != "" {
		return o.From
	}
	return o.To
}

func (c *coordinator) onDepart(m *wire.Depart) {
	if m.Type != c.r.names.key || m.From == nil {
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
}

// view is what the strategy decides on.
func (c *coordinator) view(standings []standing) View {
	now := c.now()
	var v View
	snapshot := c.r.group.Members()
	takes := map[string]registration{}
	for _, g := range c.r.table.participants(true) {
		takes[g.owner.Incarnation] = g
	}
	for inc, until := range c.leaving {
		if now >= until {
			delete(c.leaving, inc)
		}
	}
	for _, m := range snapshot.Members {
		if _, ok := takes[m.Incarnation]; !ok {
			continue
		}
		_, leaving := c.leaving[m.Incarnation]
		v.Hosts = append(v.Hosts, Host{ID: m.ID, Incarnation: m.Incarnation, Roles: m.Roles, Capacity: m.Capacity, Leaving: m.Leaving || leaving})
	}
	v.Owners = make([]string, len(standings))
	for i, s := range standings {
		if s.held {
			v.Owners[i] = s.rec.Owner.Incarnation
		}
	}
	return v
}

// decide orders what is to be done next.
func (c *coordinator) decide() {
	if !c.checked || !c.g.CheckAlive() {
		return
	}
	select {
	case <-c.r.table.ready:
	default:
		return // its completion is a change
	}
	now := c.now()
	standings := c.r.table.all()
	v := c.view(standings)
	c.settleOrders(v, standings, now)
	calm := c.calm(v, now)
	target, err := c.target(v)
	if err != nil {
		c.log.Error("the strategy failed: nothing is moved", zap.Error(err))
		c.soon(time.Second)
		return
	}
	c.divert(v, target, now)
	given := make(map[int]Order, len(c.underWay))
	for i, o := range c.underWay {
		given[i] = o.Order
	}
	var orders []Order
	for _, o := range Plan(v, target, given, c.r.set.limits) {
		switch until, rests := c.resting[o.Shard]; {
		case rests && now < until:
			c.soon(until - now)
		case o.From == "" && !c.grace, o.From != "" && !calm && !leavingNow(v, o.From):
		default:
			delete(c.resting, o.Shard)
			orders = append(orders, o)
		}
	}
	c.give(orders, standings, v, now)
	c.soon(decideEvery)
}

// divert gives shards that need a host now, and are meant for a node that does not
// take them at present, to the one that has the least for its capacity. The strategy
// has its way when that node is back.
func (c *coordinator) divert(v View, target []string, now time.Duration) {
	for inc, until := range c.shunned {
		if now >= until {
			delete(c.shunned, inc)
		}
	}
	if len(c.shunned) == 0 {
		return
	}
	load := map[string]int{}
	for _, to := range target {
		load[to]++
	}
	var others []Host
	for _, h := range v.Hosts {
		if _, shunned := c.shunned[h.Incarnation]; !shunned && h.takes() > 0 {
			others = append(others, h)
		}
	}
	if len(others) == 0 {
		return
	}
	for i, to := range target {
		owner := v.Owners[i]
		if _, shunned := c.shunned[to]; !shunned || owner == to || owner != "" && !leavingNow(v, owner) {
			continue
		}
		best := slices.MinFunc(others, func(a, b Host) int {
			return cmp.Or(cmp.Compare(load[a.Incarnation]*b.Capacity, load[b.Incarnation]*a.Capacity), cmp.Compare(a.ID, b.ID))
		})
		load[best.Incarnation]++
		target[i] = best.Incarnation
	}
}

// calm reports whether the nodes have been the same for long enough to move shards
// that live. Free ones are assigned after half of that the first time, so that nodes
// which start together each get their part.
func (c *coordinator) calm(v View, now time.Duration) bool {
	incs := make([]string, 0, len(v.Hosts))
	for _, h := range v.Hosts {
		incs = append(incs, h.Incarnation)
	}
	slices.Sort(incs)
	if !slices.Equal(incs, c.hosts) {
		c.hosts, c.since = incs, now
	}
	settle := c.r.set.settle
	if !c.grace {
		held := slices.ContainsFunc(v.Owners, func(o string) bool { return o != "" })
		if c.grace = len(incs) > 0 && (held || now-c.since >= settle/2); !c.grace && len(incs) > 0 {
			c.soon(settle/2 - (now - c.since))
		}
	}
	if now-c.since < settle {
		c.soon(settle - (now - c.since))
		return false
	}
	return true
}

func leavingNow(v View, incarnation string) bool {
	return slices.ContainsFunc(v.Hosts, func(h Host) bool { return h.Incarnation == incarnation && h.Leaving })
}

// target asks the user's strategy.
func (c *coordinator) target(v View) (target []string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked: %v", p)
		}
	}()
	v.Hosts, v.Owners = slices.Clone(v.Hosts), slices.Clone(v.Owners) // it may write to them
	target = slices.Clone(c.r.set.strategy.Target(v))
	if len(target) != len(v.Owners) {
		return nil, fmt.Errorf("it returned %d targets for %d shards", len(target), len(v.Owners))
	}
	return target, nil
}

// settleOrders forgets what was done, what can't be done any more, and what took
// too long.
func (c *coordinator) settleOrders(v View, standings []standing, now time.Duration) {
	there := map[string]bool{}
	for _, h := range v.Hosts {
		there[h.Incarnation] = true
	}
	for i, o := range c.underWay {
		owner := v.Owners[i]
		switch {
		case owner == o.To, !there[o.To], o.From != "" && !there[o.From], owner != "" && owner != o.From && o.From != "":
			delete(c.underWay, i)
		case o.From == "" && owner != "": // another's
			delete(c.underWay, i)
		case o.From != "" && owner == "" && standings[i].last >= o.by: // given up on the way
			delete(c.underWay, i)
		case now >= o.until:
			delete(c.underWay, i)
			if o.From == "" {
				c.shunned[o.To] = now + shunFor
			}
			c.log.Warn("an order took too long, and is given anew", zap.Int("shard", i), zap.String("to", o.To))
		default:
			c.soon(o.until - now)
		}
	}
}

// give sends the orders, to each node all of its own in messages of bounded size.
func (c *coordinator) give(orders []Order, standings []standing, v View, now time.Duration) {
	const most = 1000
	nodes := map[string]lease.Owner{}
	for _, g := range c.r.table.participants(true) {
		nodes[g.owner.Incarnation] = g.owner
	}
	batches := map[string]*wire.Order{}
	send := func(to string) {
		if b := batches[to]; b != nil && c.g.CheckAlive() {
			c.r.send(nodes[to].Address, b)
		}
		delete(batches, to)
	}
	for _, o := range orders {
		patience := hostWithin
		if o.From != "" {
			patience = c.r.set.stopWithin + 5*time.Second
		}
		to := o.executor()
		a := &wire.Assignment{Shard: uint32(o.Shard), Token: uint64(standings[o.Shard].last)}
		if o.From != "" {
			a.Next = nodeOf(nodes[o.To])
		}
		c.underWay[o.Shard] = underWay{o, standings[o.Shard].last, now + patience}
		b := batches[to]
		if b == nil {
			b = &wire.Order{Type: c.r.names.key, From: c.r.self, Coordinator: uint64(c.g.Token()), Shards: uint32(c.r.typ.Shards), To: to}
			batches[to] = b
		}
		if b.Assignments = append(b.Assignments, a); len(b.Assignments) >= most {
			send(to)
		}
	}
	for to := range batches {
		send(to)
	}
}
