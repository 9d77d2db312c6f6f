package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/placement"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
)

// This part is how a Coordinator comes to its orders. What it knows and what time it is are
// given to it, and nothing here does anything but remember.

const (
	// cooling is the pause before a shard whose order failed is ordered again.
	cooling = 300 * time.Millisecond
	// avoidFor is how long a node that did not take over a shard that lives, or gave no
	// answer, is given none that needs a host now; and one that refused a free shard not
	// that one.
	avoidFor = 3 * time.Second
	// hostWithin is how long a node may take to host a shard that is free.
	hostWithin = 3 * time.Second
	// leavingFor is how long a node counts as leaving after it last said so.
	leavingFor = 3 * LeaveEvery
)

// LeaveEvery is the pause after which a node that leaves says so again. A new coordinator does not
// know yet which nodes leave: it moves no shards of nodes that stay before listenFor is over.
const (
	LeaveEvery = 300 * time.Millisecond
	listenFor  = 3 * LeaveEvery / 2
)

// known is what there is to decide on.
type known struct {
	now      time.Duration
	at       time.Time // the same, by the wall clock
	arranged bool      // shards that are free may be assigned
	members  []membership.Member
	hosts    []directory.Registration // nodes that take part, and host
	seats    []directory.Seat         // the shards; they may be left out where only hosts count
	version  uint64                   // of the Table that seats are of
}

// owners are the nodes that host, by incarnation.
func (k known) owners() map[string]lease.Owner {
	nodes := make(map[string]lease.Owner, len(k.hosts))
	for _, g := range k.hosts {
		nodes[g.Owner.Incarnation] = g.Owner
	}
	return nodes
}

// ledger is what a Coordinator remembers of its orders, and of what nodes said.
type ledger struct {
	Settings

	hosts        []string                 // the incarnations, as last seen
	since        time.Duration            // since when they are these
	listens      time.Duration            // until when nodes that leave may not have said so
	assignedOnce bool                     // free shards have been
	inFlight     map[int]inFlight         // orders, by shard
	leaving      map[string]time.Duration // incarnations that give up what they have, until when that counts

	// Until when are avoided: a shard on a node that refused it; all shards on a node that did not
	// take what it was to (anyShard); and a shard whose last order failed (on no node).
	avoided map[placing]time.Duration
}

// inFlight is an order that was given.
type inFlight struct {
	Order
	by    lease.Token // decided on
	until time.Duration
	since time.Time
}

// moves lists the orders that move shards which have a host, by shard.
func (l *ledger) moves(nodes map[string]lease.Owner) (all []inquiry.Move) {
	for _, o := range l.inFlight {
		if o.From != "" {
			all = append(all, inquiry.Move{Shard: o.Shard, From: nodes[o.From].ID, To: nodes[o.To].ID, Since: o.since})
		}
	}
	slices.SortFunc(all, func(a, b inquiry.Move) int { return cmp.Compare(a.Shard, b.Shard) })
	return all
}

// placing is a shard on a node.
type placing struct {
	shard int
	on    string // incarnation
}

const anyShard = -1

func newLedger(s Settings) ledger {
	return ledger{Settings: s, inFlight: map[int]inFlight{}, leaving: map[string]time.Duration{}, avoided: map[placing]time.Duration{}}
}

// restart counts the time that hosts are the same from now on.
func (l *ledger) restart(now time.Duration) { l.since, l.listens = now, now+listenFor }

// view is what a strategy decides on.
func (l *ledger) view(k known) placement.View {
	var v placement.View
	members := map[string]membership.Member{}
	for _, m := range k.members {
		members[m.Incarnation] = m
	}
	maps.DeleteFunc(l.leaving, func(_ string, until time.Duration) bool { return k.now >= until })
	for _, g := range k.hosts {
		m, ok := members[g.Owner.Incarnation]
		// If it leaves it may be no member: a later life of its ID is, in its place.
		if _, leaving := l.leaving[g.Owner.Incarnation]; ok || leaving {
			v.Hosts = append(v.Hosts, placement.Host{ID: g.Owner.ID, Incarnation: g.Owner.Incarnation, Roles: m.Roles,
				Capacity: m.Capacity, Labels: m.Labels, Leaving: m.Leaving || leaving})
		}
	}
	v.Owners = make([]string, len(k.seats))
	for i, s := range k.seats {
		v.Owners[i] = s.Owner
	}
	return v
}

// hostsOf are the hosts of a View by incarnation.
func hostsOf(v placement.View) map[string]placement.Host {
	all := make(map[string]placement.Host, len(v.Hosts))
	for _, h := range v.Hosts {
		all[h.Incarnation] = h
	}
	return all
}

func there(hosts map[string]placement.Host, incarnation string) bool {
	_, is := hosts[incarnation]
	return is
}

// waits reports whether time alone may change the decision.
func (l *ledger) waits() bool {
	return len(l.inFlight)+len(l.leaving)+len(l.avoided) > 0
}

// anyTakes reports whether any host takes shards.
func (l *ledger) anyTakes(k known) bool {
	return slices.ContainsFunc(l.view(k).Hosts, func(h placement.Host) bool { return h.Takes() > 0 })
}

// decision is what to do next.
type decision struct {
	hosts  []placement.Host // as they are
	orders []Order
	late   []Order // that took too long
	wake   wake
}

// wake is after how long to decide again, if nothing changes before; 0: that is not needed.
type wake time.Duration

func (w *wake) in(d time.Duration) {
	if *w == 0 || d < time.Duration(*w) {
		*w = wake(max(d, 1))
	}
}

// decide returns the next orders that lead to a target, and counts them as given. The target
// is about the shards as they were asked about: those that have changed hands since are
// asked about again.
func (l *ledger) decide(k known, asked placement.View, target []string) (d decision) {
	v := l.view(k)
	d.hosts = v.Hosts
	for i, owner := range v.Owners {
		if owner != asked.Owners[i] {
			target[i] = owner
		}
	}
	hosts := hostsOf(v)
	l.settleOrders(k, v, hosts, &d)
	stable := l.stable(v, hosts, k.now, &d.wake)
	l.reassign(v, hosts, target, k.now)
	for _, o := range plan(v, hosts, target, l.inFlight, l.Limits) {
		switch until, cools := l.avoided[placing{o.Shard, ""}]; {
		case cools:
			d.wake.in(until - k.now)
		case o.From == "" && !(k.arranged && l.assignedOnce), o.From != "" && !stable && !hosts[o.From].Leaving:
		default:
			patience := hostWithin
			if o.From != "" {
				patience = l.Stop + 5*time.Second
			}
			l.inFlight[o.Shard] = inFlight{o, k.seats[o.Shard].Last, k.now + patience, k.at}
			d.orders = append(d.orders, o)
		}
	}
	return d
}

// reassign finds another node for each shard that needs a host now and whose target does not
// take it at present: the willing node with the lowest load for its capacity. The strategy
// has its way when the target takes shards again.
func (l *ledger) reassign(v placement.View, hosts map[string]placement.Host, target []string, now time.Duration) {
	maps.DeleteFunc(l.avoided, func(_ placing, until time.Duration) bool { return now >= until })
	if len(l.avoided) == 0 {
		return
	}
	willing := func(shard int, inc string) bool {
		return l.avoided[placing{anyShard, inc}] == 0 && l.avoided[placing{shard, inc}] == 0
	}
	load := map[string]int{}
	for _, to := range target {
		load[to]++
	}
	for i, to := range target {
		owner := v.Owners[i]
		if to == "" || owner == to || owner != "" && !hosts[owner].Leaving || willing(i, to) {
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

// stable reports whether the hosts have been the same for long enough to move shards
// that live. Free ones are assigned after half of that the first time, so that nodes
// which start together each get their part.
func (l *ledger) stable(v placement.View, hosts map[string]placement.Host, now time.Duration, w *wake) bool {
	incs := slices.Sorted(maps.Keys(hosts))
	if !slices.Equal(incs, l.hosts) {
		l.hosts, l.since = incs, now
	}
	if !l.assignedOnce {
		held := slices.ContainsFunc(v.Owners, func(o string) bool { return o != "" })
		if l.assignedOnce = len(incs) > 0 && (held || now-l.since >= l.Settle/2); !l.assignedOnce && len(incs) > 0 {
			w.in(l.Settle/2 - (now - l.since))
		}
	}
	if from := max(l.since+l.Settle, l.listens); now < from {
		w.in(from - now)
		return false
	}
	return true
}

// settleOrders forgets what was done, what can't be done any more, and what took
// too long.
func (l *ledger) settleOrders(k known, v placement.View, hosts map[string]placement.Host, d *decision) {
	for i, o := range l.inFlight {
		owner := v.Owners[i]
		switch {
		case owner == o.To, !there(hosts, o.To), o.From != "" && !there(hosts, o.From),
			owner != "" && owner != o.From,                         // another's
			o.From != "" && owner == "" && k.seats[i].Last >= o.by: // given up on the way
			delete(l.inFlight, i)
		case k.now >= o.until:
			delete(l.inFlight, i)
			if o.From == "" {
				l.avoided[placing{anyShard, o.To}] = k.now + avoidFor
			}
			d.late = append(d.late, o.Order)
		default:
			d.wake.in(o.until - k.now)
		}
	}
}

// failed takes up that an order came to nothing, from the node that it had gone to; false if
// none had.
func (l *ledger) failed(shard int, on string, now time.Duration) bool {
	o, ok := l.inFlight[shard]
	if !ok || on != executor(o.Order) {
		return false
	}
	delete(l.inFlight, shard)
	l.avoided[placing{shard, ""}] = now + cooling
	if o.From != "" {
		shard = anyShard
	}
	l.avoided[placing{shard, o.To}] = now + avoidFor
	return true
}

// leaves takes up that a node gives up what it has, or does not any more; true if that is
// new.
func (l *ledger) leaves(incarnation string, back bool, now time.Duration) bool {
	_, was := l.leaving[incarnation]
	if back {
		delete(l.leaving, incarnation)
	} else {
		l.leaving[incarnation] = now + leavingFor
	}
	return was == back
}

// again returns the orders that may have been lost with the link to an address. Who has
// taken one already is not troubled by another. They are due when they were.
func (l *ledger) again(k known, address string) (orders []Order) {
	at := map[string]bool{}
	for _, g := range k.hosts {
		at[g.Owner.Incarnation] = g.Owner.Address == address
	}
	for i, o := range l.inFlight {
		free := o.From == "" && at[o.To] && k.seats[i].Owner == ""
		move := o.From != "" && at[o.From] && k.seats[i].Owner == o.From
		if (free || move) && k.now < o.until {
			orders = append(orders, o.Order)
			o.by = k.seats[i].Last
			l.inFlight[i] = o
		}
	}
	slices.SortFunc(orders, func(a, b Order) int { return cmp.Compare(a.Shard, b.Shard) })
	return orders
}

// executor is the incarnation that an order goes to.
func executor(o Order) string {
	if o.From != "" {
		return o.From
	}
	return o.To
}

// most is how many orders one message carries.
const most = 1000

// messages are orders as they are sent: to each node all of its own, in messages of bounded
// size. Who sends them, and under which token, is for the sender to say.
func messages(orders []Order, k known) (all []*wire.Order) {
	nodes, open := k.owners(), map[string]*wire.Order{}
	for _, o := range orders {
		a := &wire.Assignment{Shard: uint32(o.Shard), Token: uint64(k.seats[o.Shard].Last)}
		if o.From != "" {
			a.Next = wire.NodeOf(nodes[o.To])
		}
		to := executor(o)
		m := open[to]
		if m == nil {
			m = &wire.Order{To: to}
			open[to], all = m, append(all, m)
		}
		if m.Assignments = append(m.Assignments, a); len(m.Assignments) >= most {
			delete(open, to)
		}
	}
	return all
}

// CompleteLimits returns l with the defaults for so many shards in place of zeros: of very many
// shards each has the less in it, and a join or a leave is to take about as many rounds as
// that of a few.
func CompleteLimits(l placement.MoveLimits, shards int) placement.MoveLimits {
	return placement.MoveLimits{Moves: cmp.Or(l.Moves, max(100, shards/50)), PerHost: cmp.Or(l.PerHost, max(25, shards/200))}
}

// Order says that host To takes up a shard, which host From, if there is one, hands off to it.
type Order struct {
	Shard    int
	From, To string // incarnations
}

// plan returns the next orders that lead from a View to a target, in the order of the shards.
// Free shards are taken up without a bound; moves of those that have a host are bounded by l,
// together with the ones in flight, of which none is ordered again. A shard whose host is gone
// is left to its lease.
func plan(v placement.View, hosts map[string]placement.Host, target []string, inFlight map[int]inFlight, l placement.MoveLimits) []Order {
	busy, moves := map[string]int{}, 0
	for _, o := range inFlight {
		if o.From != "" {
			moves++
			busy[o.From]++
			busy[o.To]++
		}
	}
	var orders []Order
	for s, to := range target[:min(len(target), len(v.Owners))] {
		from := v.Owners[s]
		if _, ok := inFlight[s]; ok || to == "" || to == from || !there(hosts, to) {
			continue
		}
		switch {
		case from == "":
		case !there(hosts, from): // its lease runs out, or it comes back
			continue
		case moves >= l.Moves || busy[from] >= l.PerHost || busy[to] >= l.PerHost:
			continue
		default:
			moves++
			busy[from]++
			busy[to]++
		}
		orders = append(orders, Order{s, from, to})
	}
	return orders
}
