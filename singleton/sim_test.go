package singleton_test

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
	"github.com/holdfast-go/holdfast/singleton"
)

var histories = simulate.New("singleton", 40, 1500)

// TestSimulation runs random histories of a singleton on a few nodes: trouble of
// all kinds, a calm time in which it moves by plan, trouble again. In every other
// one the links get congested, and the calm time is a crowded one. sim_check_test.go
// says what is checked. A seed fixes the history: nodes, settings, what happens
// and when. How goroutines interleave within one moment is the scheduler's; to
// replay a failure run its seed with -count.
func TestSimulation(t *testing.T) {
	histories.Run(t, play)
}

// slot is a place in the cluster: an address, where one incarnation after the
// other lives.
type slot struct {
	id     string
	lives  int
	n      *node
	leader *membership.Static
	heard  simulate.News // of leaders
	m      *singleton.Manager
	begun  int // managers so far
	frozen bool
	gone   bool // crashed, and not yet restarted
	muted  bool // sends nothing: its manager is being stopped
}

func (sl *slot) up() bool { return !sl.gone && !sl.frozen }

// serves reports whether there is a manager that may be sent to.
func (sl *slot) serves() bool { return sl.up() && !sl.muted && sl.m != nil && !ended(sl.m) }

// sender is who sends in order: what one manager of the node left with others when it ended,
// the next one's mail may overtake.
func (sl *slot) sender() string { return fmt.Sprint(sl.id, "#", sl.begun) }

func ended(m *singleton.Manager) bool {
	select {
	case <-m.Done():
		return true
	default:
		return false
	}
}

// sim is one history. The driver's goroutine owns what is not in records.
type sim struct {
	t      *testing.T
	seed   uint64
	c      *cluster
	r      *simulate.Random
	slots  []*slot
	follow bool     // who hosts is for the sources of leadership to say
	prefer []string // or these are preferred
	opts   []singleton.Option
	small  bool // buffers are
	leads  *slot
	jams   bool          // links get congested
	rude   bool          // subscribers panic, hang and call back
	within time.Duration // how long children have to stop
	toil   time.Duration // a thousandth of what most handlers take at the most
	linger time.Duration // beyond the default, how long managers forward
	jobs   int
	records
}

func play(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		// protoactor's log of dead letters ends a second after the last, which a
		// timer of a frozen node's may bring about.
		defer func() { time.Sleep(2 * ttl); synctest.Wait() }()
		s := &sim{t: t, seed: seed, r: histories.Random(seed),
			c: &cluster{t: t, store: memory.New(), net: memnet.New()}}
		defer s.end()
		defer s.report()
		s.draw()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.watchRecords(ctx)
		for _, sl := range s.slots {
			s.restart(sl)
		}
		s.trouble(30)
		s.heal()
		s.settle()
		if s.jams {
			s.crowded()
		} else {
			s.calm()
		}
		s.trouble(15)
		s.heal()
		s.settle()
		s.stopAll()
		s.account()
	})
}

// draw makes the settings up.
func (s *sim) draw() {
	for i := range 2 + s.r.IntN(3) {
		s.slots = append(s.slots, &slot{id: fmt.Sprint("n", i), gone: true})
	}
	least := []time.Duration{20 * time.Millisecond, 200 * time.Millisecond}[s.r.IntN(2)]
	s.opts = append(s.opts, singleton.WithBackoff(least, 2*time.Second))
	switch s.r.IntN(4) {
	case 0, 1:
		s.follow = true
	case 2:
		s.prefer = []string{"n1", "n0"}
		s.opts = append(s.opts, singleton.WithPreferred(s.prefer...))
	}
	settle := []time.Duration{0, 60 * time.Millisecond, 300 * time.Millisecond}
	if s.prefer != nil {
		settle = settle[1:] // else one move may follow another at once
	}
	s.opts = append(s.opts, singleton.WithSettle(settle[s.r.IntN(len(settle))]))
	if s.r.IntN(2) == 0 {
		s.opts = append(s.opts, singleton.WithStop(func() any { return bye{} }, time.Second+s.upTo(3*time.Second)))
	} else {
		s.opts = append(s.opts, singleton.WithStop(nil, time.Second+s.upTo(3*time.Second)))
	}
	if s.r.IntN(2) == 0 {
		s.yields = true
		s.opts = append(s.opts, singleton.WithOverdue(hosting.ReleaseAfterTTL))
	}
	if s.r.IntN(4) == 0 {
		s.small = true
		s.opts = append(s.opts, singleton.WithBuffer(1+s.r.IntN(40), hosting.DropPolicy(s.r.IntN(2))))
	}
	s.rude = s.odds(3, 30) == 0
	s.within = 4 * time.Second
	if s.jams = s.odds(2, 20) == 0; s.jams {
		s.drawJams()
	}
}

func (s *sim) upTo(d time.Duration) time.Duration { return time.Duration(s.r.Int64N(int64(d))) }

func (s *sim) some() *slot { return s.slots[s.r.IntN(len(s.slots))] }

// behind is the store of a slot's next life: in one of four histories it can't watch.
func (s *sim) behind(sl *slot) lease.Store {
	w := witness{dialect{s.c.store, s.speaks(sl)}, s}
	if s.odds(4, 51) == 0 {
		return unwatched{w, w}
	}
	return w
}

// restart brings a slot's next incarnation up.
func (s *sim) restart(sl *slot) {
	if !sl.gone {
		return
	}
	sl.lives++
	n := &node{c: s.c, id: sl.id, clock: faultclock.New(), store: faultstore.Wrap(s.behind(sl))}
	n.system = actor.NewActorSystem(remoting.LogTo(nil))
	s.c.net.Join(n.system, sl.id+":1")
	k, err := lease.NewKeeper(n.store, lease.Config{ID: sl.id, Address: n.system.Address(), TTL: ttl, Clock: n.clock, Logger: s.logger(sl)})
	require.NoError(s.t, err)
	n.keeper = k
	sl.n, sl.gone, sl.frozen, sl.m = n, false, false, nil
	s.observe(sl)
	s.c.atEnd(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = k.Close(ctx)
		n.store.Wait()
	})
	was := sl.leader
	sl.leader = membership.NewStatic(k.Owner())
	if was != nil && s.r.IntN(2) == 0 {
		sl.leader.Set(s.some().owner())
	}
	s.logf("%s comes up, life %d", sl.id, sl.lives)
	s.start(sl)
}

func (sl *slot) owner() lease.Owner {
	if sl.n == nil {
		return lease.Owner{}
	}
	return sl.n.keeper.Owner()
}

func (s *sim) logger(sl *slot) *zap.Logger {
	l := zap.NewNop()
	if histories.Replays() {
		l = zaptest.NewLogger(s.t).With(zap.String("at", fmt.Sprint(sl.id, ".", sl.lives)))
	}
	return l
}

// start runs the singleton on a slot, unless it still does.
func (s *sim) start(sl *slot) {
	if sl.gone || sl.m != nil && !ended(sl.m) {
		return
	}
	n := sl.n
	opts := append(slices.Clone(s.opts), singleton.WithLogger(s.logger(sl)), users(sl), singleton.WithJournal(func(_ string, token lease.Token, _ time.Duration) { s.pass(n, token) }))
	if s.follow {
		opts = append(opts, singleton.WithLeadership(sl.leader))
	}
	m, err := singleton.Start(n.system, n.keeper, "x", s.child(n), opts...)
	require.NoError(s.t, err, "seed %d", s.seed)
	sl.m, sl.muted = m, false
	sl.begun++
	s.c.managers = append(s.c.managers, m)
	s.started(n, m)
	s.logf("%s starts", sl.id)
}

// end stops and closes everything, also of those that crashed.
func (s *sim) end() {
	var all sync.WaitGroup
	for n, ms := range s.all {
		n.clock.Thaw()
		n.clock.SetRate(1)
		n.store.SetRule(nil)
		n.store.Heal()
		for _, m := range ms {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
				defer cancel()
				_ = m.Stop(ctx)
			})
		}
	}
	all.Wait()
	s.c.cleanUp()
}
