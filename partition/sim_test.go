package partition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/membership"
)

var histories = simulate.New("partition", 30, 2000)

// TestSimulation runs random histories of nodes that start, stop, crash, are paused and cut off, with
// calls of the store that go wrong, Owns that are slow to stop or fail, and other numbers of partitions
// or daemons, or lists of keys. It checks that no two nodes believe that they own the same at one time;
// and that, when all is well, each partition is owned soon, evenly, and stays where it is. Replay with
// -partition.seed.
func TestSimulation(t *testing.T) {
	histories.Run(t, func(t *testing.T, seed uint64) {
		bubble(t, func(t *testing.T, w *world) {
			s := &sim{world: w, r: histories.Random(seed), seed: seed, at: map[string]*node{}}
			s.count, s.keyed, w.daemons = 1+s.r.IntN(12), s.r.IntN(3) == 0, s.r.IntN(3) == 0
			for range s.r.Each(50) {
				s.act()
				for until := time.Now().Add(time.Duration(s.r.Int64N(int64(4 * time.Second)))); time.Now().Before(until); {
					time.Sleep(time.Duration(1 + s.r.Int64N(int64(400*time.Millisecond))))
					s.judge()
				}
			}
			s.heal()
		})
	})
}

type sim struct {
	*world
	r     *simulate.Random
	seed  uint64
	count int
	keyed bool
	at    map[string]*node // the present life of each id
}

func (s *sim) logf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = append(s.trace, fmt.Sprintf("%v ", time.Now().Format("04:05.000"))+fmt.Sprintf(format, args...))
}

func (s *sim) judge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judgeLocked()
}

// act does one random thing.
func (s *sim) act() {
	id := fmt.Sprint("n", s.r.IntN(5))
	n := s.at[id]
	if n == nil {
		s.launch(id, s.r.IntN(2) == 0)
		return
	}
	switch s.r.IntN(12) {
	case 0:
		s.logf("%s crashes", id)
		n.crash()
		s.at[id] = nil
	case 1, 2:
		if !n.frozen {
			s.logf("%s stops: %v", id, n.stop())
			s.at[id] = nil
		}
	case 3:
		if !n.frozen {
			s.logf("%s is paused", id)
			n.freeze()
		}
	case 4, 5:
		s.logf("%s goes on", id)
		n.thaw()
	case 6:
		if !n.frozen {
			s.logf("%s is cut off", id)
			n.store.Partition()
		}
	case 7:
		if !n.frozen {
			s.logf("%s is reconnected", id)
			n.store.Heal()
		}
	case 8:
		n.store.CutWatches()
	case 9:
		s.logf("%s's calls go wrong", id)
		n.store.SetRule(simulate.Faults(rand.New(rand.NewPCG(s.r.Uint64(), 2)), s.r.Float64()/2, ttl))
	default:
		n.store.SetRule(nil)
	}
}

// partitions are those of the history, or others: twice as many or, of keys, half of them and new ones.
func (s *sim) partitions(others bool) (cfg Config) {
	from := 0
	switch {
	case !s.keyed && others:
		return Config{Count: 2 * s.count}
	case !s.keyed:
		return Config{Count: s.count}
	case others:
		from = (s.count + 1) / 2
	}
	for i := range s.count {
		cfg.Keys = append(cfg.Keys, fmt.Sprint("k", from+i))
	}
	return cfg
}

// launch starts a node; one that can't join in time is given up.
func (s *sim) launch(id string, others bool) {
	n := s.make(id)
	n.clock.SetRate(0.93 + 0.14*s.r.Float64()) // the margin covers a tenth
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	var err error
	if n.group, err = membership.Join(ctx, n.keeper, "g"); err != nil {
		s.logf("%s does not join: %v", id, err)
		n.crash()
		return
	}
	r := rand.New(rand.NewPCG(s.r.Uint64(), 3)) // used under the lock
	draw := func(most int64) time.Duration {
		s.mu.Lock()
		defer s.mu.Unlock()
		return time.Duration(r.Int64N(most))
	}
	cfg := s.partitions(others)
	cfg.Settle = 2 * time.Second
	cfg.Prepare = func(ctx context.Context, _ int) error {
		if time.Sleep(draw(int64(time.Second))); draw(20) == 0 {
			return errors.New("not prepared")
		}
		return nil
	}
	cfg.Own = func(ctx context.Context, o Owned) error {
		if draw(10) == 0 {
			time.Sleep(draw(int64(10 * time.Second)))
			return errors.New("Own failed")
		}
		<-ctx.Done()
		time.Sleep(draw(int64(3 * time.Second)))
		return nil
	}
	n.start(cfg)
	n.others = others
	s.at[id] = n
	s.logf("%s starts with %d%v", id, cfg.Count, cfg.Keys)
}

// heal ends all faults, and sees that all is well.
func (s *sim) heal() {
	for id, n := range s.at {
		if n != nil {
			n.thaw()
			n.store.SetRule(nil)
			s.logf("%s is healed", id)
		}
	}
	s.launch("last", false)
	for _, n := range s.at {
		if n != nil && n.others {
			s.logf("%s stops: %v", n.id, n.stop())
		}
	}
	owned := func() (all []int, each []int) {
		for _, n := range s.at {
			if n != nil && !n.gone {
				all, each = append(all, n.Owned()...), append(each, len(n.Owned()))
			}
		}
		slices.Sort(all)
		return all, each
	}
	healed := time.Now()
	for all, _ := owned(); len(all) != s.count; all, _ = owned() {
		// The records of the dead, and what was sick, and an Own that fails at its beginning.
		if time.Since(healed) > ttl+sickFor+20*time.Second {
			s.fail("%v are owned, of %d", all, s.count)
		}
		time.Sleep(100 * time.Millisecond)
		s.judge()
	}
	time.Sleep(2*sickFor + ttl)
	so := s.so()
	time.Sleep(10 * time.Minute)
	all, each := owned()
	if again, _ := s.since(so); again > 0 || len(slices.Compact(all)) != s.count || slices.Max(each)-slices.Min(each) > 1 {
		s.fail("%d began though all was well; %v are owned, %v each", again, all, each)
	}
	s.t.Logf("%d nodes, %d runs, all owned %v after the faults", len(s.nodes), so, time.Since(healed))
}

func (s *sim) fail(format string, args ...any) {
	s.t.Fatalf("seed %d: %s\n%s", s.seed, fmt.Sprintf(format, args...), strings.Join(s.trace, "\n"))
}
