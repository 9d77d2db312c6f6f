package singleton_test

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
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
)

var histories = simulate.New("singleton", 40, 1500)

// TestSimulation runs random histories of a singleton on a few nodes: trouble of
// all kinds, a calm time in which it moves by plan, trouble again. In every other
// one the links get congested, and the calm time is a crowded one. testkit.Sim and
// sim_check_test.go say what is checked. A seed fixes the history: nodes, settings, what
// happens and when. How goroutines interleave within one moment is the scheduler's; to
// replay a failure run its seed with -count.
func TestSimulation(t *testing.T) {
	histories.Run(t, func(t *testing.T, seed uint64) { testkit.Play(t, histories, seed, play) })
}

// slot is a place in the cluster, and the manager there.
type slot struct {
	*testkit.Slot
	m     *singleton.Manager
	begun int  // managers so far
	muted bool // sends nothing: its manager is being stopped
}

// serves reports whether there is a manager that may be sent to.
func (sl *slot) serves() bool { return sl.Up() && !sl.muted && sl.m != nil && !ended(sl.m) }

// sender is who sends in order: what one manager of the node left with others when it ended,
// the next one's mail may overtake.
func (sl *slot) sender() string { return fmt.Sprint(sl.ID, "#", sl.begun) }

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
	*testkit.Sim
	slots  []*slot
	prefer []string // they are preferred
	opts   []singleton.Option
	jobs   int
	records
}

func play(of *testkit.Sim) {
	s := &sim{Sim: of, records: newRecords()}
	defer s.end()
	defer s.report()
	s.draw()
	ctx, cancel := context.WithCancel(s.T.Context())
	defer cancel()
	go s.WatchRecords(ctx, "singleton/x", s.see)
	for _, sl := range s.slots {
		s.restart(sl)
	}
	defer s.Besiege("holdfast/singleton/x", theLease)()
	s.trouble(30)
	s.heal()
	s.settle()
	if s.Jams {
		s.crowded()
	} else {
		s.calm()
	}
	s.trouble(15)
	s.heal()
	s.settle()
	s.stopAll()
	s.account()
}

// draw makes the settings up.
func (s *sim) draw() {
	for _, sl := range s.MakeSlots(4) {
		s.slots = append(s.slots, &slot{Slot: sl})
	}
	least := []time.Duration{20 * time.Millisecond, 200 * time.Millisecond}[s.R.IntN(2)]
	s.opts = append(s.opts, singleton.WithBackoff(least, 2*time.Second))
	switch s.R.IntN(4) {
	case 0, 1:
		s.Follow = true
	case 2:
		s.prefer = []string{"n1", "n0"}
		s.opts = append(s.opts, singleton.WithPreferred(s.prefer...))
	}
	settle := []time.Duration{0, 60 * time.Millisecond, 300 * time.Millisecond}
	if s.prefer != nil {
		settle = settle[1:] // else one move may follow another at once
	}
	s.opts = append(s.opts, singleton.WithSettle(settle[s.R.IntN(len(settle))]))
	stop := func() any { return bye{} }
	if s.R.IntN(2) == 0 {
		stop = nil
	}
	s.opts = append(s.opts, singleton.WithStop(stop, time.Second+s.UpTo(3*time.Second)))
	if s.R.IntN(2) == 0 {
		s.Yields = true
		s.opts = append(s.opts, singleton.WithOverdue(hosting.ReleaseAfterTTL))
	}
	if s.R.IntN(4) == 0 {
		s.Small = true
		s.opts = append(s.opts, singleton.WithBuffer(1+s.R.IntN(40), hosting.DropPolicy(s.R.IntN(2))))
	}
	s.Rude = s.Odds(3, 30) == 0
	s.Stop = 4 * time.Second
	if s.Jams = s.Odds(2, 20) == 0; s.Jams {
		s.DrawJams()
		s.opts = append(s.opts, singleton.WithStop(func() any { return bye{} }, s.Stop), singleton.WithLinger(s.Linger))
	}
}

func (s *sim) some() *slot { return s.slots[s.R.IntN(len(s.slots))] }

// behind is the store of a slot's next life: in one of four histories it can't watch.
func (s *sim) behind(sl *slot) store.Store {
	w := testkit.Witness{Store: s.Store, Sim: s.Sim, Way: dialect{s.Store, s.speaks(sl)}}
	if s.polls() {
		return unwatched{w, w}
	}
	return w
}

func (s *sim) polls() bool { return s.Odds(4, 51) == 0 }

// restart brings a slot's next incarnation up.
func (s *sim) restart(sl *slot) {
	if !sl.Gone {
		return
	}
	sl.m = nil
	n := s.Restart(sl.Slot, func() store.Store { return s.behind(sl) }, func(c *lease.Config) { c.Logger = s.logger(sl) })
	s.observe(n)
	s.start(sl)
}

func (s *sim) logger(sl *slot) *zap.Logger {
	l := zap.NewNop()
	if histories.Replays() {
		l = zaptest.NewLogger(s.T).With(zap.String("at", fmt.Sprint(sl.ID, ".", sl.Lives)))
	}
	return l
}

// start runs the singleton on a slot, unless it still does.
func (s *sim) start(sl *slot) {
	if sl.Gone || sl.m != nil && !ended(sl.m) {
		return
	}
	n := sl.On
	opts := append(slices.Clone(s.opts), singleton.WithLogger(s.logger(sl)), users(sl), singleton.WithJournal(func(name string, token lease.Token, _ time.Duration) { s.pass(n, name, token) }))
	if s.Follow {
		opts = append(opts, singleton.WithLeadership(sl.Leader))
	}
	m, err := singleton.Start(n.System, n.Keeper, "x", s.child(n), opts...)
	require.NoError(s.T, err, "seed %d", s.Seed)
	sl.m, sl.muted = m, false
	sl.begun++
	s.started(n, m)
	s.Logf("%s starts", sl.ID)
}

// end stops and closes everything, also of those that crashed.
func (s *sim) end() {
	var all sync.WaitGroup
	for n, ms := range s.all {
		n.Mend()
		for _, m := range ms {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
				defer cancel()
				_ = m.Stop(ctx)
			})
		}
	}
	all.Wait()
	for n := range s.all {
		n.Close()
	}
}
