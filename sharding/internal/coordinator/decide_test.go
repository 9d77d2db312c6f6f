package coordinator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/placement"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
)

const (
	settle = 500 * time.Millisecond
	stop   = 10 * time.Second
)

// world is nodes that do what they are ordered, or do not.
type world struct {
	t      *testing.T
	r      *rand.Rand
	l      ledger
	limits placement.MoveLimits
	k      known
	lives  int

	stableSince time.Duration // since when the hosts are the same
	hosts       []string
	failedAt    map[int]time.Duration
	refusedAt   map[placing]time.Duration
	silentAt    map[string]time.Duration // nodes that did not take what they were to
	assigned    bool
}

func newWorld(t *testing.T, r *rand.Rand, shards int) *world {
	limits := placement.MoveLimits{Moves: 1 + r.IntN(20), PerHost: 1 + r.IntN(10)}
	w := &world{t: t, r: r, limits: limits, l: newLedger(Settings{Limits: limits, Settle: settle, Stop: stop}), failedAt: map[int]time.Duration{},
		refusedAt: map[placing]time.Duration{}, silentAt: map[string]time.Duration{}}
	w.k.now = -time.Hour // a clock may begin anywhere
	w.k.arranged = true
	w.l.restart(w.k.now)
	w.k.seats = make([]directory.Seat, shards)
	for range 1 + r.IntN(5) {
		w.join()
	}
	return w
}

func (w *world) join() {
	w.lives++
	o := lease.Owner{ID: fmt.Sprint("n", w.lives), Incarnation: fmt.Sprint("i", w.lives), Address: fmt.Sprint("a", w.lives)}
	w.k.hosts = append(w.k.hosts, directory.Registration{Owner: o, Token: lease.Token(w.lives), Hosts: true})
	w.k.members = append(w.k.members, membership.Member{ID: o.ID, Incarnation: o.Incarnation, Capacity: 1})
}

// leave ends the life of a node: what it held is free at once.
func (w *world) leave(i int) {
	inc := w.k.hosts[i].Owner.Incarnation
	w.k.hosts = slices.Delete(slices.Clone(w.k.hosts), i, i+1)
	w.k.members = slices.Delete(slices.Clone(w.k.members), i, i+1)
	for s := range w.k.seats {
		if w.k.seats[s].Owner == inc {
			w.k.seats[s].Owner = ""
		}
	}
}

// decide makes a decision, and checks it.
func (w *world) decide() []Order {
	v := w.l.view(w.k)
	var incs []string
	for _, h := range v.Hosts {
		incs = append(incs, h.Incarnation)
	}
	slices.Sort(incs)
	if !slices.Equal(incs, w.hosts) {
		w.hosts, w.stableSince = incs, w.k.now
	}
	before := len(w.l.inFlight)
	flying := map[int]bool{}
	for i := range w.l.inFlight {
		flying[i] = true
	}
	d := w.l.decide(w.k, v, placement.Balanced{}.Target(v))
	for _, o := range d.late {
		delete(flying, o.Shard)
		if o.From == "" {
			w.silentAt[o.To] = w.k.now
		}
	}
	held := slices.ContainsFunc(v.Owners, func(o string) bool { return o != "" })
	w.assigned = w.assigned || len(incs) > 0 && (held || w.k.now-w.stableSince >= settle/2)
	moves := 0
	for _, o := range d.orders {
		require.Contains(w.t, incs, o.To, "to a host that is there")
		require.Equal(w.t, w.k.seats[o.Shard].Owner, o.From)
		require.NotEqual(w.t, o.From, o.To)
		if flying[o.Shard] {
			require.Contains(w.t, w.l.inFlight, o.Shard)
		}
		if at, ok := w.failedAt[o.Shard]; ok {
			require.GreaterOrEqual(w.t, w.k.now-at, cooling, "shard %d cools down", o.Shard)
		}
		if o.From == "" {
			require.True(w.t, w.assigned, "free shards wait for the nodes that start together")
			require.True(w.t, w.k.arranged, "and for what is remembered of them")
			if at, ok := w.refusedAt[placing{o.Shard, o.To}]; ok && w.k.now-at < avoidFor {
				require.False(w.t, w.otherThan(v, o), "shard %d went to %s, which had refused it", o.Shard, o.To)
			}
			continue
		}
		moves++
		require.True(w.t, w.k.now-w.stableSince >= settle || hostsOf(v)[o.From].Leaving, "shards that live wait until the hosts are stable")
	}
	require.LessOrEqual(w.t, moves, w.limits.Moves)
	require.LessOrEqual(w.t, len(w.l.inFlight), before+len(d.orders))
	all := 0
	for _, m := range messages(d.orders, w.k) {
		require.LessOrEqual(w.t, len(m.Assignments), most)
		for _, a := range m.Assignments {
			all++
			o := w.l.inFlight[int(a.Shard)]
			require.Equal(w.t, m.To, executor(o.Order))
			require.Equal(w.t, uint64(o.by), a.Token)
			require.Equal(w.t, o.From == "", a.Next == nil)
			require.True(w.t, a.Next == nil || a.Next.Incarnation == o.To)
		}
	}
	require.Equal(w.t, len(d.orders), all, "every order is sent once")
	return d.orders
}

// otherThan reports whether a host other than the one of o may take its shard.
func (w *world) otherThan(v placement.View, o Order) bool {
	return slices.ContainsFunc(v.Hosts, func(h placement.Host) bool {
		at, refused := w.refusedAt[placing{o.Shard, h.Incarnation}]
		silent, is := w.silentAt[h.Incarnation]
		return h.Takes() > 0 && h.Incarnation != o.To && !(refused && w.k.now-at < avoidFor) && !(is && w.k.now-silent < avoidFor)
	})
}

// obey does what was ordered, or says no, or nothing.
func (w *world) obey(o Order, faults bool) {
	x := 9
	if faults {
		x = w.r.IntN(10)
	}
	switch x {
	case 0: // lost
	case 1:
		require.False(w.t, w.l.failed(o.Shard, "another", w.k.now), "nobody else reports of it")
		require.True(w.t, w.l.failed(o.Shard, executor(o), w.k.now))
		require.False(w.t, w.l.failed(o.Shard, executor(o), w.k.now), "once")
		w.failedAt[o.Shard] = w.k.now
		if o.From == "" {
			w.refusedAt[placing{o.Shard, o.To}] = w.k.now
		} else {
			w.silentAt[o.To] = w.k.now
		}
	case 2: // given up on the way
		w.k.seats[o.Shard] = directory.Seat{Last: w.k.seats[o.Shard].Last + 1}
	default:
		w.k.seats[o.Shard] = directory.Seat{Owner: o.To, Last: w.k.seats[o.Shard].Last + 1}
	}
}

// Shards that live are moved while it is not known yet where what is remembered stands, and
// free ones wait for that.
func TestMovesDoNotWaitForTheEntityStore(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewPCG(1, 1)), 10)
	for len(w.k.hosts) < 2 {
		w.join()
	}
	w.k.arranged = false
	leaver := w.k.hosts[0].Owner.Incarnation
	for i := range 5 {
		w.k.seats[i] = directory.Seat{Owner: leaver, Last: 1}
	}
	w.l.leaves(leaver, false, w.k.now)
	orders := w.decide()
	require.NotEmpty(t, orders)
	for _, o := range orders {
		require.Equal(t, leaver, o.From)
	}
	w.k.arranged = true
	free := slices.DeleteFunc(w.decide(), func(o Order) bool { return o.From != "" })
	require.Len(t, free, 5)
}

// Whatever nodes make of orders, a decision keeps to what is known, to its limits and to its
// pauses; and when they obey each shard is soon where it is to be.
func TestDecisions(t *testing.T) {
	for range tier.Draws(200, 5000) {
		seed := rand.Uint64()
		w := newWorld(t, rand.New(rand.NewPCG(seed, 1)), 1+rand.New(rand.NewPCG(seed, 2)).IntN(60))
		t.Logf("seed %d: %d shards", seed, len(w.k.seats))
		for range 300 {
			w.k.now += time.Duration(w.r.IntN(400)) * time.Millisecond
			switch w.r.IntN(25) {
			case 4:
				w.k.arranged = !w.k.arranged
			case 0:
				w.join()
			case 1:
				if len(w.k.hosts) > 1 {
					w.leave(w.r.IntN(len(w.k.hosts)))
				}
			case 2:
				inc := w.k.hosts[w.r.IntN(len(w.k.hosts))].Owner.Incarnation
				w.l.leaves(inc, w.r.IntN(3) == 0, w.k.now)
			case 3:
				g := w.k.hosts[w.r.IntN(len(w.k.hosts))].Owner
				for _, o := range w.l.again(w.k, g.Address) {
					require.Equal(t, g.Incarnation, executor(o))
					require.Equal(t, w.k.seats[o.Shard].Owner, o.From, "who has taken it is not troubled again")
				}
			}
			for _, o := range w.decide() {
				w.obey(o, true)
			}
		}
		w.k.arranged = true
		until := w.k.now + stop + 5*time.Second + leavingFor + avoidFor // the longest an order may take
		for w.k.now < until+time.Duration(len(w.k.seats))*100*time.Millisecond {
			w.k.now += 100 * time.Millisecond
			for _, o := range w.decide() {
				w.obey(o, false)
			}
		}
		v := w.l.view(w.k)
		require.Equal(t, v.Owners, placement.Balanced{}.Target(v), "seed %d: all is where it is to be", seed)
		require.Empty(t, w.decide())
	}
}

// A new coordinator does not know which nodes are drained, so it listens before it moves shards.
func TestANewCoordinatorListensBeforeItMovesShards(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewPCG(1, 1)), 6)
	for len(w.k.hosts) < 3 {
		w.join()
	}
	w.k.hosts, w.k.members = w.k.hosts[:3], w.k.members[:3]
	for i := range w.k.seats { // the third is drained
		w.k.seats[i] = directory.Seat{Owner: w.k.hosts[i%2].Owner.Incarnation, Last: 1}
	}
	w.l.Settle = 0
	require.Empty(t, w.decide(), "the third has not said yet that it leaves")
	w.k.now += LeaveEvery
	w.l.leaves(w.k.hosts[2].Owner.Incarnation, false, w.k.now)
	require.Empty(t, w.decide())
	w.k.now += LeaveEvery
	require.Empty(t, w.decide())
	w.l.leaves(w.k.hosts[2].Owner.Incarnation, true, w.k.now)
	w.stableSince -= settle // this coordinator's Settle is 0
	require.NotEmpty(t, w.decide(), "now the third takes its part")
}

func TestManyOrdersAreSentInMessagesOfBoundedSize(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewPCG(1, 1)), 2*most+1)
	var orders []Order
	for i := range w.k.seats {
		orders = append(orders, Order{Shard: i, To: w.k.hosts[0].Owner.Incarnation})
	}
	all := messages(orders, w.k)
	require.Len(t, all, 3)
	require.Len(t, all[0].Assignments, most)
	require.Len(t, all[2].Assignments, 1)
}
