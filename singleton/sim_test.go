package singleton_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
	"github.com/holdfast-go/holdfast/singleton"
)

var (
	simSeed  = flag.Uint64("singleton.seed", 0, "replay the one simulated history of this seed")
	simCount = flag.Int("singleton.histories", 100, "how many histories TestSimulation makes up")
)

// TestSimulation runs random histories of crashes, restarts, pauses, partitions,
// store faults, stops and crashing or slow children, and checks I1, I2, I4 and
// I7. Replay a failing one with -singleton.seed.
func TestSimulation(t *testing.T) {
	if *simSeed != 0 {
		simulate(t, *simSeed)
		return
	}
	base := rand.Uint64()
	for i := range *simCount {
		seed := base + uint64(i)
		if !t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { simulate(t, seed) }) {
			t.Fatalf("replay with -run TestSimulation -singleton.seed=%d", seed)
		}
	}
}

// slot is a place in the cluster: an address, where one incarnation after the
// other lives.
type slot struct {
	id     string
	n      *node
	m      *singleton.Manager
	frozen bool
	gone   bool // crashed, and not yet restarted
}

type sim struct {
	t     *testing.T
	c     *cluster
	r     *rand.Rand
	slots []*slot
	seed  uint64

	highest lease.Token // of all passes so far; guarded by the journal's lock
	passes  int
	jobs    int
}

func simulate(t *testing.T, seed uint64) {
	bubble(t, func(t *testing.T, c *cluster) {
		s := &sim{t: t, c: c, seed: seed, r: rand.New(rand.NewPCG(seed, 1))}
		c.log.behave = s.behave
		for i := range 2 + s.r.IntN(3) {
			s.slots = append(s.slots, &slot{id: fmt.Sprint("n", i), gone: true})
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.watchReleases(ctx)
		for _, sl := range s.slots {
			s.restart(sl)
		}
		for range 40 {
			s.act()
			time.Sleep(s.upTo(2 * time.Second))
			s.send()
		}
		s.heal()
		s.settle()
	})
}

func (s *sim) upTo(d time.Duration) time.Duration { return time.Duration(s.r.Int64N(int64(d))) }

func (s *sim) some() *slot { return s.slots[s.r.IntN(len(s.slots))] }

// restart brings a slot's next incarnation up.
func (s *sim) restart(sl *slot) {
	if !sl.gone {
		return
	}
	sl.n, sl.gone, sl.frozen = s.c.node(sl.id), false, false
	s.start(sl)
}

func (s *sim) start(sl *slot) {
	if sl.m != nil {
		select {
		case <-sl.m.Done():
		default:
			if sl.m.Status().Phase != singleton.Closed && sl.n.system == nil {
				return
			}
		}
	}
	m, err := singleton.Start(sl.n.system, sl.n.keeper, "x", sl.n.worker(),
		singleton.WithBackoff(100*time.Millisecond, 2*time.Second), singleton.WithJournal(s.pass))
	if err != nil {
		return // an earlier manager of this incarnation is still stopping
	}
	sl.m = m
	s.c.managers = append(s.c.managers, m)
	s.c.atEnd(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = m.Stop(ctx)
	})
}

// pass checks I1: passes come in the order of their tokens.
func (s *sim) pass(_ string, token lease.Token, _ time.Duration) {
	s.c.log.mu.Lock()
	defer s.c.log.mu.Unlock()
	s.passes++
	if token < s.highest {
		s.t.Errorf("seed %d: I1: a pass under token %d after one under %d", s.seed, token, s.highest)
	}
	s.highest = token
}

// behave makes children slow and short-lived.
func (s *sim) behave(n *node, ctx actor.Context, l *life) bool {
	switch msg := ctx.Message().(type) {
	case *actor.Stopping:
		if l.token%3 == 0 {
			time.Sleep(time.Duration(l.token%7) * 700 * time.Millisecond)
		}
	case job:
		switch msg.Number % 10 {
		case 3:
			panic("a bad job")
		case 5:
			time.Sleep(1500 * time.Millisecond)
		case 7:
			ctx.Stop(ctx.Self())
		}
	}
	return false
}

// act does one random thing to the cluster.
func (s *sim) act() {
	sl := s.some()
	switch s.r.IntN(12) {
	case 0:
		if !sl.gone {
			s.c.log.crashed(sl.n)
			sl.n.crash()
			sl.gone, sl.m = true, nil
		}
	case 1, 2:
		s.restart(sl)
	case 3:
		if !sl.gone {
			s.freeze(sl, true)
		}
	case 4, 5:
		if !sl.gone {
			s.freeze(sl, false)
		}
	case 6:
		if !sl.gone && !sl.frozen {
			sl.n.store.Partition()
		}
	case 7:
		if !sl.gone && !sl.frozen {
			sl.n.store.Heal()
		}
	case 8:
		if !sl.gone {
			sl.n.store.SetRule(s.faults())
		}
	case 9:
		if other := s.some(); other != sl {
			s.c.net.Cut(sl.id+":1", other.id+":1")
		}
	case 10:
		if other := s.some(); other != sl {
			s.c.net.Heal(sl.id+":1", other.id+":1")
		}
	case 11:
		if !sl.gone && !sl.frozen && sl.m != nil {
			ctx, cancel := context.WithTimeout(s.t.Context(), s.upTo(5*time.Second)+1)
			_ = sl.m.Stop(ctx)
			cancel()
			s.start(sl)
		}
	}
}

// freeze pauses a node as SIGSTOP does, or lets it go on.
func (s *sim) freeze(sl *slot, on bool) {
	if sl.frozen == on {
		return
	}
	sl.frozen = on
	s.c.log.mu.Lock()
	s.c.log.freeze(sl.n, on)
	s.c.log.mu.Unlock()
	if on {
		sl.n.clock.Freeze()
		sl.n.store.Partition()
		s.c.net.Freeze(sl.id + ":1")
		return
	}
	sl.n.store.Heal()
	sl.n.clock.Thaw()
	s.c.net.Thaw(sl.id + ":1")
}

// faults makes a random share of the calls go wrong in random ways.
func (s *sim) faults() func(faultstore.Call) faultstore.Fault {
	if s.r.IntN(3) == 0 {
		return nil
	}
	r := rand.New(rand.NewPCG(s.r.Uint64(), 2))
	share := r.Float64() / 2
	kinds := []faultstore.Kind{faultstore.Delay, faultstore.Drop, faultstore.ApplyThenFail, faultstore.ReplyLate, faultstore.LandLate}
	var mu sync.Mutex // calls come from many goroutines
	return func(faultstore.Call) faultstore.Fault {
		mu.Lock()
		defer mu.Unlock()
		if r.Float64() > share {
			return faultstore.Fault{}
		}
		return faultstore.Fault{Kind: kinds[r.IntN(len(kinds))], Delay: time.Duration(r.Int64N(int64(ttl))), Hang: r.IntN(2) == 0}
	}
}

// send has somebody send a job.
func (s *sim) send() {
	if sl := s.some(); !sl.gone && !sl.frozen && sl.m != nil {
		s.jobs++
		sl.n.system.Root.Send(sl.m.PID(), job{Sender: sl.id, Number: s.jobs})
	}
}

func (s *sim) heal() {
	for i, sl := range s.slots {
		if !sl.gone {
			s.freeze(sl, false)
			sl.n.store.SetRule(nil)
			sl.n.store.Heal()
		}
		for _, other := range s.slots[:i] {
			s.c.net.Heal(sl.id+":1", other.id+":1")
		}
	}
}

// settle checks I7, and that in the end nothing is held for nobody.
func (s *sim) settle() {
	time.Sleep(ttl + 15*time.Second)
	active := 0
	for _, sl := range s.slots {
		s.restart(sl)
		if sl.m == nil {
			continue
		}
		select {
		case <-sl.m.Done():
			s.start(sl)
		default:
		}
	}
	time.Sleep(ttl + 15*time.Second)
	for _, sl := range s.slots {
		if sl.m.Status().Phase == singleton.Active {
			active++
		}
	}
	require.Equal(s.t, 1, active, "seed %d: I7: held again, once, when all is well: %s", s.seed, s.c.statuses())
	for i, sl := range s.slots {
		d := sl.n.mustAsk(sl.m.PID(), (s.jobs+i+1)*10)
		require.NotZero(s.t, d.Token)
	}
	s.c.log.check()
	require.Positive(s.t, s.passes)
	for _, sl := range s.slots {
		require.NoError(s.t, sl.m.Stop(s.t.Context()))
	}
	synctest.Wait()
	time.Sleep(2 * ttl)
	for rec, err := range s.c.store.List(s.t.Context(), "") {
		require.NoError(s.t, err)
		s.t.Errorf("seed %d: %+v is held for nobody", s.seed, rec)
	}
}

// watchReleases checks I4: no record goes while work runs under it by right.
func (s *sim) watchReleases(ctx context.Context) {
	var standing lease.Token
	for ev, err := range s.c.store.Watch(ctx, "singleton/x") {
		if err != nil {
			return
		}
		gone := standing
		switch ev.Kind {
		case lease.EventPut:
			standing = ev.Record.Token
		case lease.EventDelete:
			standing = 0
		}
		if gone == 0 || gone == standing {
			continue
		}
		s.c.log.mu.Lock()
		for _, l := range s.c.log.lives {
			if l.token == gone && l.to.IsZero() && l.ctx.Err() == nil && !s.c.log.excused(l.on) {
				s.t.Errorf("seed %d: I4: token %d went while its child ran on %s", s.seed, gone, l.node)
			}
		}
		s.c.log.mu.Unlock()
	}
}
