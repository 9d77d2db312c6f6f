package sharding_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultclock"
	"github.com/holdfast-go/holdfast/lease/faultstore"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/placement"
)

var suite = simulate.New("sharding", 8, 1500)

// TestSimulation runs random histories of a type on a few nodes: trouble of all
// kinds, a calm time in which shards move by plan, trouble again. In every other one
// the links get congested, and the calm time is a crowded one. sim_check_test.go says
// what is checked. A seed fixes the history: nodes, settings, what happens and when. How
// goroutines interleave within one moment is the scheduler's; to replay a
// failure run its seed with -count.
func TestSimulation(t *testing.T) {
	histories(t, func(s *sim) {
		s.trouble(25)
		s.heal()
		s.settle()
		s.moves(1 + s.r.IntN(3))
		s.severed()
		s.unborn()
		s.stuck()
		s.trouble(12)
		s.heal()
		s.settle()
	})
}

// TestCalmHistories runs random histories in which nothing but what is planned
// happens, and so nothing may be lost.
func TestCalmHistories(t *testing.T) {
	histories(t, func(s *sim) {
		s.heal()
		s.settle()
		s.moves(6 + s.r.IntN(8))
		s.settle()
	})
}

// moves is the calm time of a history.
func (s *sim) moves(n int) {
	if s.jams {
		s.crowded(n)
	} else {
		s.calm(n)
	}
}

func histories(t *testing.T, play func(*sim)) {
	suite.Run(t, func(t *testing.T, seed uint64) { history(t, seed, play) })
}

// slot is a place in the cluster: an address, where one incarnation after the
// other lives.
type slot struct {
	id      string
	lives   int
	n       *node
	leader  *membership.Static
	heard   simulate.News // of leaders
	frozen  bool
	gone    bool          // crashed or left, and not yet restarted
	left    chan struct{} // not nil: it is leaving; closed when it has
	again   bool          // only its Region leaves, and the next begins
	drained bool
	stop    chan struct{} // ends its senders
	senders sync.WaitGroup
}

func (sl *slot) address() string { return sl.id + ":1" }

func (sl *slot) up() bool { return !sl.gone && !sl.frozen }

// serves reports whether there is a Region that may be sent to.
func (sl *slot) serves() bool { return sl.up() && sl.left == nil }

// hosts reports whether shards are to be there.
func (sl *slot) hosts() bool { return sl.serves() && !sl.drained }

func (sl *slot) owner() lease.Owner {
	if sl.n == nil {
		return lease.Owner{}
	}
	return sl.n.keeper.Owner()
}

// sim is one history. The driver's goroutine owns what is not in records.
type sim struct {
	t         *testing.T
	seed      uint64
	c         *cluster
	r         *simulate.Random
	slots     []*slot
	shards    int
	ids       int
	opts      []sharding.Option
	stop      time.Duration // how long entities have to stop
	linger    time.Duration // beyond the default, how long Regions forward
	toil      time.Duration // a thousandth of what most handlers take at the most, in a crowded time
	jams      bool          // links get congested
	total     int           // bound of what waits
	small     bool          // buffers are
	rude      bool          // subscribers panic, hang and call back
	follow    bool          // where the coordinator is is for a source of leadership to say
	leads     *slot
	idle      time.Duration
	most      int // active entities on a node
	jobs      int
	crowdJobs int // those among them of a crowded time
	names     int
	records
}

func history(t *testing.T, seed uint64, play func(*sim)) {
	synctest.Test(t, func(t *testing.T) {
		// protoactor's log of dead letters ends a second after the last, which a
		// timer of a frozen node's may bring about.
		defer func() { time.Sleep(2 * ttl); synctest.Wait() }()
		s := &sim{t: t, seed: seed, r: suite.Random(seed),
			c: &cluster{t: t, store: memory.New(), net: memnet.New()}}
		s.prepare()
		defer s.end()
		defer s.report()
		s.draw()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.watchRecords(ctx)
		for i, sl := range s.slots {
			if i < 2 || s.r.IntN(4) > 0 {
				s.restart(sl)
			}
		}
		play(s)
		s.stopAll()
		s.account()
	})
}

// draw makes the settings up.
func (s *sim) draw() {
	for i := range 2 + s.r.IntN(6) {
		s.slots = append(s.slots, &slot{id: fmt.Sprint("n", i), gone: true})
	}
	s.shards = 8 + s.r.IntN(57)
	if s.r.IntN(20) == 0 {
		s.shards = 256
	}
	s.ids = 10 + s.r.IntN(41)
	s.stop = time.Second + s.upTo(3*time.Second)
	s.opts = append(s.opts, sharding.WithBackoff(20*time.Millisecond, 2*time.Second),
		sharding.WithSettle([]time.Duration{60 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond}[s.r.IntN(3)]))
	if s.r.IntN(2) == 0 {
		s.opts = append(s.opts, sharding.WithStop(func() any { return simBye{} }, s.stop))
	} else {
		s.opts = append(s.opts, sharding.WithStop(nil, s.stop))
	}
	if s.r.IntN(2) == 0 {
		s.yields = true
		s.opts = append(s.opts, sharding.WithOverdue(hosting.ReleaseAfterTTL))
	}
	if s.total = 100_000; s.r.IntN(4) == 0 {
		s.small, s.total = true, 20+s.r.IntN(200)
		s.opts = append(s.opts, sharding.WithBuffer(1+s.r.IntN(20), s.total, hosting.DropPolicy(s.r.IntN(2))))
	}
	if s.r.IntN(3) == 0 {
		s.idle = 20*time.Millisecond + s.upTo(time.Second)
		s.opts = append(s.opts, sharding.WithPassivation(s.idle))
	}
	if s.r.IntN(3) == 0 {
		s.most = 2 + s.r.IntN(10)
		s.opts = append(s.opts, sharding.WithMaxActive(s.most))
	}
	if s.r.IntN(3) == 0 {
		s.opts = append(s.opts, sharding.WithMoveLimits(placement.MoveLimits{Moves: 1 + s.r.IntN(20), PerHost: 1 + s.r.IntN(5)}))
	}
	s.follow = s.r.IntN(3) == 0
	s.stateful = s.r.IntN(2) == 0
	s.rude = s.odds(2, 31) == 0
	if s.odds(2, 30) == 0 {
		s.opts = append(s.opts, sharding.WithStrategy(simStrategy{s}))
	}
	if s.jams = s.odds(2, 20) == 0; s.jams {
		s.drawJams()
	}
}

func (s *sim) upTo(d time.Duration) time.Duration { return time.Duration(s.r.Int64N(int64(d))) }

func (s *sim) some() *slot { return s.slots[s.r.IntN(len(s.slots))] }

// which are the slots that f is true of.
func (s *sim) which(f func(*slot) bool) (all []*slot) {
	for _, sl := range s.slots {
		if f(sl) {
			all = append(all, sl)
		}
	}
	return all
}

// restart brings a slot's next incarnation up.
func (s *sim) restart(sl *slot) {
	if !sl.gone {
		return
	}
	sl.lives++
	n := &node{c: s.c, id: sl.id, clock: faultclock.New(), store: faultstore.Wrap(witness{s.c.store, s})}
	n.system = actor.NewActorSystem(remoting.LogTo(nil))
	s.c.net.Join(n.system, sl.address())
	log := s.logger(sl)
	k, err := lease.NewKeeper(n.store, lease.Config{ID: sl.id, Address: n.system.Address(), TTL: ttl, Clock: n.clock,
		Logger: log})
	require.NoError(s.t, err)
	n.keeper = k
	sl.n, sl.gone, sl.frozen, sl.drained, sl.left = n, false, false, false, nil
	s.observe(sl, n)
	n.group, err = membership.Join(context.Background(), k, "g", membership.WithLogger(log))
	require.NoError(s.t, err, "seed %d", s.seed)
	n.group.OnLost(func(lease.Loss) { s.bar(n) })
	was := sl.leader
	sl.leader = membership.NewStatic(k.Owner())
	if was != nil && s.r.IntN(2) == 0 {
		sl.leader.Set(s.some().owner())
	}
	s.logf("%s comes up, life %d", sl.id, sl.lives)
	s.start(sl)
}

// start runs the type on a slot's node.
func (s *sim) start(sl *slot) {
	n := sl.n
	r, err := sharding.Start(n.system, n.group, sharding.Type{Name: "account", Props: s.props(n), Shards: s.shards},
		s.optionsOf(sl)...)
	require.NoError(s.t, err, "seed %d", s.seed)
	n.region = r
	s.started(n, r)
}

func (s *sim) optionsOf(sl *slot) []sharding.Option {
	n := sl.n
	opts := append(slices.Clone(s.opts), sharding.WithLogger(s.logger(sl)),
		sharding.WithJournal(func(name string, token lease.Token, _ time.Duration) { s.pass(n, name, token) }))
	if s.follow {
		opts = append(opts, sharding.WithLeadership(sl.leader))
	}
	return opts
}

func (s *sim) logger(sl *slot) *zap.Logger {
	l := zap.NewNop()
	if suite.Replays() {
		l = zaptest.NewLogger(s.t).With(zap.String("at", fmt.Sprint(sl.id, ".", sl.lives)))
	}
	return l
}

// end stops and closes everything, also of those that crashed.
func (s *sim) end() {
	for _, sl := range s.slots {
		s.hush(sl)
	}
	var all sync.WaitGroup
	for n, rs := range s.all {
		n.clock.Thaw()
		n.clock.SetRate(1)
		n.store.SetRule(nil)
		n.store.Heal()
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
			defer cancel()
			for _, r := range rs {
				if err := r.Stop(ctx); err != nil {
					s.t.Errorf("seed %d: %s does not end: %v", s.seed, n.id, err)
				}
			}
			_ = n.group.Leave(ctx)
			_ = n.keeper.Close(ctx)
			n.store.Wait()
		})
	}
	all.Wait()
}
