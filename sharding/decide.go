package sharding

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
	"github.com/holdfast-go/holdfast/sharding/placement"
)

// This file is how a coordinator comes to its orders.

// view is what the strategy decides on.
func (c *coordinator) view(seats []directory.Seat) placement.View {
	now := c.now()
	var v placement.View
	snapshot := c.r.group.Members()
	takes, listed := map[string]directory.Registration{}, map[string]bool{}
	for _, g := range c.r.table.Participants(true) {
		takes[g.Owner.Incarnation] = g
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
		listed[m.Incarnation] = true
		v.Hosts = append(v.Hosts, placement.Host{ID: m.ID, Incarnation: m.Incarnation, Roles: m.Roles, Capacity: m.Capacity,
			Leaving: m.Leaving || leaving})
	}
	for inc, g := range takes { // a later life of the ID is listed in its place
		_, leaving := c.leaving[inc]
		if leaving && !listed[inc] {
			v.Hosts = append(v.Hosts, placement.Host{ID: g.Owner.ID, Incarnation: inc, Leaving: true})
		}
	}
	v.Owners = make([]string, len(seats))
	for i, s := range seats {
		v.Owners[i] = s.Owner
	}
	return v
}

// decide orders what is to be done next.
func (c *coordinator) decide() {
	if !c.checked || !c.g.CheckAlive() {
		return
	}
	select {
	case <-c.r.table.Ready():
	default:
		return // its completion is a change
	}
	now := c.now()
	switch q := c.question; {
	case q == nil:
		c.ask(c.view(c.r.table.Seats()), now)
	case now >= q.until:
		v := c.view(c.r.table.Seats())
		c.order(v, c.without(v, errNoAnswer))
	default:
		c.changed = true
	}
	c.soon(decideEvery)
}

// order gives the next orders that lead to a target, which is about the shards as they
// were asked about. Those that have changed hands since are asked about again.
func (c *coordinator) order(asked placement.View, target []string) {
	now := c.now()
	seats := c.r.table.Seats()
	v := c.view(seats)
	for i, owner := range v.Owners {
		if owner != asked.Owners[i] {
			target[i] = owner
		}
	}
	c.settleOrders(v, seats, now)
	calm := c.calm(v, now)
	c.divert(v, target, now)
	given := make(map[int]placement.Order, len(c.underWay))
	for i, o := range c.underWay {
		given[i] = o.Order
	}
	var orders []placement.Order
	leaving := leaversOf(v)
	for _, o := range placement.Plan(v, target, given, c.r.set.limits) {
		switch until, rests := c.resting[o.Shard]; {
		case rests && now < until:
			c.soon(until - now)
		case o.From == "" && !c.grace, o.From != "" && !calm && !leaving[o.From]:
		default:
			delete(c.resting, o.Shard)
			orders = append(orders, o)
		}
	}
	c.give(orders, seats, now)
}

// divert gives shards that need a host now, and are meant for a node that does not
// take them at present, to the one that has the least for its capacity of those that
// may. The strategy has its way when that node is back.
func (c *coordinator) divert(v placement.View, target []string, now time.Duration) {
	over := func(until time.Duration) bool { return now >= until }
	maps.DeleteFunc(c.shunned, func(_ string, until time.Duration) bool { return over(until) })
	maps.DeleteFunc(c.refused, func(_ placing, until time.Duration) bool { return over(until) })
	if len(c.shunned)+len(c.refused) == 0 {
		return
	}
	willing := func(shard int, inc string) bool {
		_, shunned := c.shunned[inc]
		_, refused := c.refused[placing{shard, inc}]
		return !shunned && !refused
	}
	load, leaving := map[string]int{}, leaversOf(v)
	for _, to := range target {
		load[to]++
	}
	for i, to := range target {
		owner := v.Owners[i]
		if to == "" || owner == to || owner != "" && !leaving[owner] || willing(i, to) {
			continue
		}
		best := placement.Host{}
		for _, h := range v.Hosts {
			if h.Takes() > 0 && willing(i, h.Incarnation) && (best.Incarnation == "" ||
				cmp.Or(cmp.Compare(load[h.Incarnation]*best.Capacity, load[best.Incarnation]*h.Capacity),
					cmp.Compare(h.ID, best.ID)) < 0) {
				best = h
			}
		}
		if best.Incarnation != "" {
			load[best.Incarnation]++
			target[i] = best.Incarnation
		}
	}
}

// calm reports whether the nodes have been the same for long enough to move shards
// that live. Free ones are assigned after half of that the first time, so that nodes
// which start together each get their part.
func (c *coordinator) calm(v placement.View, now time.Duration) bool {
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

// leaversOf are the incarnations that give up what they have.
func leaversOf(v placement.View) map[string]bool {
	all := map[string]bool{}
	for _, h := range v.Hosts {
		if h.Leaving {
			all[h.Incarnation] = true
		}
	}
	return all
}

// settleOrders forgets what was done, what can't be done any more, and what took
// too long.
func (c *coordinator) settleOrders(v placement.View, seats []directory.Seat, now time.Duration) {
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
		case o.From != "" && owner == "" && seats[i].Last >= o.by: // given up on the way
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
func (c *coordinator) give(orders []placement.Order, seats []directory.Seat, now time.Duration) {
	const most = 1000
	nodes := map[string]lease.Owner{}
	for _, g := range c.r.table.Participants(true) {
		nodes[g.Owner.Incarnation] = g.Owner
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
		to := executor(o)
		a := &wire.Assignment{Shard: uint32(o.Shard), Token: uint64(seats[o.Shard].Last)}
		if o.From != "" {
			a.Next = wire.NodeOf(nodes[o.To])
		}
		c.underWay[o.Shard] = underWay{o, seats[o.Shard].Last, now + patience}
		b := batches[to]
		if b == nil {
			b = &wire.Order{Type: c.r.names.Key, From: c.r.self, Coordinator: uint64(c.g.Token()),
				Shards: uint32(c.r.typ.Shards), To: to}
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
