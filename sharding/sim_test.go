package sharding_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/placement"
	"github.com/holdfast-go/holdfast/store"
)

var suite = simulate.New("sharding", 8, 1500)

// TestSimulation runs random histories of a type on a few nodes: trouble of all
// kinds, a calm time in which shards move by plan, trouble again. In every other one
// the links get congested, and the calm time is a crowded one. testkit.Sim and
// sim_check_test.go say what is checked. A seed fixes the history: nodes, settings, what
// happens and when. How goroutines interleave within one moment is the scheduler's; to
// replay a failure run its seed with -count.
func TestSimulation(t *testing.T) {
	histories(t, func(s *sim) {
		s.trouble(25)
		s.heal()
		s.settle()
		s.moves(1 + s.R.IntN(3))
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
		s.moves(6 + s.R.IntN(8))
		s.settle()
	})
}

// moves is the calm time of a history.
func (s *sim) moves(n int) {
	if s.Jams {
		s.crowded(n)
	} else {
		s.calm(n)
	}
}

func histories(t *testing.T, how func(*sim)) {
	suite.Run(t, func(t *testing.T, seed uint64) {
		testkit.Play(t, suite, seed, func(of *testkit.Sim) { play(of, how) })
	})
}

// slot is a place in the cluster, and the Region there.
type slot struct {
	*testkit.Slot
	region  *sharding.Region
	group   *membership.Group
	left    chan struct{} // not nil: it is leaving; closed when it has
	again   bool          // only its Region leaves, and the next begins
	drained bool
	stop    chan struct{} // ends its senders
	senders sync.WaitGroup
}

// serves reports whether there is a Region that may be sent to.
func (sl *slot) serves() bool { return sl.Up() && sl.left == nil }

// hosts reports whether shards are to be there.
func (sl *slot) hosts() bool { return sl.serves() && !sl.drained }

// sim is one history. The driver's goroutine owns what is not in records.
type sim struct {
	*testkit.Sim
	slots  []*slot
	shards int
	ids    int
	opts   []sharding.Option
	total  int // bound of what waits
	idle   time.Duration
	most   int // active entities on a node
	jobs   int
	names  int
	records
}

func play(of *testkit.Sim, play func(*sim)) {
	s := &sim{Sim: of, records: newRecords()}
	defer s.end()
	defer s.report()
	s.draw()
	ctx, cancel := context.WithCancel(s.T.Context())
	defer cancel()
	go s.WatchRecords(ctx, "shard/", func(store.Event) {})
	for i, sl := range s.slots {
		if i < 2 || s.R.IntN(4) > 0 {
			s.restart(sl)
		}
	}
	var leases []string
	for i := range s.shards {
		leases = append(leases, leaseOf(i))
	}
	defer s.Besiege(process, leases...)()
	play(s)
	s.stopAll()
	s.account()
}

// draw makes the settings up.
func (s *sim) draw() {
	for _, sl := range s.MakeSlots(7) {
		s.slots = append(s.slots, &slot{Slot: sl})
	}
	s.shards = 8 + s.R.IntN(57)
	if s.R.IntN(20) == 0 {
		s.shards = 256
	}
	s.ids = 10 + s.R.IntN(41)
	s.Stop = time.Second + s.UpTo(3*time.Second)
	s.opts = append(s.opts, sharding.WithBackoff(20*time.Millisecond, 2*time.Second),
		sharding.WithSettle([]time.Duration{60 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond}[s.R.IntN(3)]))
	stop := func() any { return simBye{} }
	if s.R.IntN(2) == 0 {
		stop = nil
	}
	s.opts = append(s.opts, sharding.WithStop(stop, s.Stop))
	if s.R.IntN(2) == 0 {
		s.Yields = true
		s.opts = append(s.opts, sharding.WithOverdue(hosting.ReleaseAfterTTL))
	}
	if s.total = 100_000; s.R.IntN(4) == 0 {
		s.Small, s.total = true, 20+s.R.IntN(200)
		s.opts = append(s.opts, sharding.WithBuffer(1+s.R.IntN(20), s.total, hosting.DropPolicy(s.R.IntN(2))))
	}
	if s.R.IntN(3) == 0 {
		s.idle = 20*time.Millisecond + s.UpTo(time.Second)
		s.opts = append(s.opts, sharding.WithPassivation(s.idle))
	}
	if s.R.IntN(3) == 0 {
		s.most = 2 + s.R.IntN(10)
		s.opts = append(s.opts, sharding.WithMaxActive(s.most))
	}
	if s.R.IntN(3) == 0 {
		s.opts = append(s.opts, sharding.WithMoveLimits(placement.MoveLimits{Moves: 1 + s.R.IntN(20), PerHost: 1 + s.R.IntN(5)}))
	}
	s.Follow = s.R.IntN(3) == 0
	s.stateful = s.R.IntN(2) == 0
	s.Rude = s.Odds(2, 31) == 0
	if s.Odds(2, 30) == 0 {
		s.opts = append(s.opts, sharding.WithStrategy(simStrategy{s}))
	}
	if s.Jams = s.Odds(2, 20) == 0; s.Jams {
		s.DrawJams()
		s.opts = append(s.opts, sharding.WithStop(func() any { return simBye{} }, s.Stop), sharding.WithLinger(s.Linger))
	}
}

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
	if !sl.Gone {
		return
	}
	sl.drained, sl.left = false, nil
	log := s.logger(sl)
	n := s.Restart(sl.Slot, func() store.Store { return testkit.Witness{Store: s.Store, Sim: s.Sim, Way: s.Store} },
		func(c *lease.Config) { c.Logger = log })
	s.observe(n)
	var err error
	sl.group, err = membership.Join(context.Background(), n.Keeper, "g", membership.WithLogger(log))
	require.NoError(s.T, err, "seed %d", s.Seed)
	sl.group.OnLost(func(lease.Loss) { s.bar(n) })
	require.NoError(s.T, s.start(sl), "seed %d", s.Seed)
}

// start runs the type on a slot's node.
func (s *sim) start(sl *slot) error {
	n := sl.On
	opts := append(slices.Clone(s.opts), sharding.WithLogger(s.logger(sl)),
		sharding.WithJournal(func(name string, token lease.Token, _ time.Duration) { s.pass(n, name, token) }))
	if s.Follow {
		opts = append(opts, sharding.WithLeadership(sl.Leader))
	}
	r, err := sharding.Start(n.System, sl.group, s.typeOn(n), opts...)
	if err != nil {
		return err
	}
	sl.region = r
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.all[n] = append(s.all[n], r)
	s.groups[n] = sl.group
	return nil
}

func (s *sim) typeOn(n *testkit.Node) sharding.Type {
	return sharding.Type{Name: "account", Props: s.props(n), Shards: s.shards}
}

func (s *sim) some() *slot { return s.slots[s.R.IntN(len(s.slots))] }

func (s *sim) logger(sl *slot) *zap.Logger {
	l := zap.NewNop()
	if suite.Replays() {
		l = zaptest.NewLogger(s.T).With(zap.String("at", fmt.Sprint(sl.ID, ".", sl.Lives)))
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
		n.Mend()
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
			defer cancel()
			for _, r := range rs {
				if err := r.Stop(ctx); err != nil {
					s.T.Errorf("seed %d: %s does not end: %v", s.Seed, n.ID, err)
				}
			}
			_ = s.groups[n].Leave(ctx)
			_ = n.Keeper.Close(ctx)
			n.Store.Wait()
		})
	}
	all.Wait()
}
