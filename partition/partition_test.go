package partition

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/placement"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// Nodes that start together share partitions out once; one that joins gets its part and no more moves;
// one that leaves passes its on without a gap; one that dies is followed after its TTL.
func TestJoinLeaveAndCrash(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var all []*node
		for _, id := range names(3) {
			all = append(all, w.take(id, Config{Count: 60}))
		}
		for _, n := range all {
			n.settled()
		}
		require.Equal(t, []int{20, 20, 20}, owned(all...))
		require.Len(t, w.runs, 60)

		so := w.so()
		all = append(all, w.take("n3", Config{Count: 60}))
		for _, n := range slices.Backward(all) {
			n.settled()
		}
		require.Equal(t, []int{15, 15, 15, 15}, owned(all...))
		moved, gap := w.since(so)
		require.Equal(t, 15, moved)
		require.Zero(t, gap)
		require.EqualValues(t, 15, all[0].Info().Moves+all[1].Info().Moves+all[2].Info().Moves)

		so, began := w.so(), time.Now()
		require.NoError(t, all[1].stop())
		all[0].settled()
		require.Equal(t, []int{20, 20, 20}, owned(all[0], all[2], all[3]))
		moved, gap = w.since(so)
		require.Equal(t, 15, moved)
		require.Zero(t, gap)
		require.Less(t, time.Since(began), time.Second)

		all[0].crash()
		time.Sleep(ttl + time.Second)
		require.Equal(t, []int{30, 30}, owned(all[2], all[3]))
		_, ok := all[2].Owner(0)
		require.True(t, ok)
	})
}

// A node that is drained gives all it has to the others, and takes its part again.
func TestDrain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.take("a", Config{Count: 10})
		a.settled()
		require.ErrorContains(t, a.Drain(t.Context()), "no other node takes them: 10 stay here")
		require.Equal(t, []int{10}, owned(a))
		b := w.take("b", Config{Count: 10})
		time.Sleep(10 * time.Second)
		require.Equal(t, []int{0, 10}, owned(a, b))
		require.NoError(t, a.Drain(t.Context()))
		a.Undrain()
		time.Sleep(10 * time.Second)
		require.Equal(t, []int{5, 5}, owned(a, b))
		so := w.so()
		require.NoError(t, b.Drain(t.Context()))
		synctest.Wait() // passed on, and not yet taken up
		require.Equal(t, []int{10, 0}, owned(a, b))
		_, gap := w.since(so)
		require.Zero(t, gap)
	})
}

// A node that is drained before it owns anything gets nothing, though its lease is given back late.
func TestDrainBeforeTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.take("a", Config{Count: 10})
		a.settled()
		b := w.take("b", Config{Count: 10})
		time.Sleep(4900 * time.Millisecond)
		so := w.so()
		b.store.SetRule(faultstore.On(faultstore.Fault{Kind: faultstore.Delay, Delay: 2 * time.Second}, faultstore.Release))
		require.NoError(t, b.Drain(t.Context()))
		time.Sleep(20 * time.Second)
		moved, _ := w.since(so)
		require.Zero(t, moved)
	})
}

// A Drain that waits for an Own ends when the node is to take part again.
func TestUndrainEndsADrain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cfg := Config{Count: 2, Own: func(ctx context.Context, o Owned) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return nil
		}}
		a := w.take("a", cfg)
		w.take("b", cfg)
		a.settled()
		ended := make(chan error, 1)
		go func() { ended <- a.Drain(t.Context()) }()
		time.Sleep(time.Second)
		a.Undrain()
		time.Sleep(time.Second)
		select {
		case err := <-ended:
			require.ErrorContains(t, err, "Undrain was called: 1 stay here")
		default:
			t.Fatal("it waits on")
		}
	})
}

// In a rolling restart each partition moves about once: what a node had that leaves goes to the one
// that came before.
func TestARollingRestartMovesEachOnce(t *testing.T) {
	for _, same := range []bool{true, false} {
		bubble(t, func(t *testing.T, w *world) {
			const nodes, count = 5, 100
			var all []*node
			for _, id := range names(nodes) {
				all = append(all, w.take(id, Config{Count: count}))
			}
			all[0].settled()
			so := w.so()
			for i, id := range names(nodes) {
				require.NoError(t, all[i].stop())
				if !same {
					id += "'"
				}
				time.Sleep(2 * time.Second)
				all[i] = w.take(id, Config{Count: count})
				time.Sleep(2 * time.Second)
			}
			time.Sleep(10 * time.Second)
			for _, n := range all {
				n.settled()
			}
			require.Equal(t, []int{20, 20, 20, 20, 20}, owned(all...))
			moved, gap := w.since(so)
			require.Zero(t, gap)
			// What leaves is 20, and then 25 four times, as there are four at a time. The last gets its part.
			require.Equal(t, 20+4*25+20, moved)
			time.Sleep(time.Hour)
			again, _ := w.since(so)
			require.Equal(t, moved, again, "none while members stay")
		})
	}
}

// The owner goes on until the next has prepared.
func TestPrepareComesFirst(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var preparing, most atomic.Int32
		cfg := Config{Count: 300, Prepare: func(ctx context.Context, number int) error {
			n := preparing.Add(1)
			defer preparing.Add(-1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			time.Sleep(200 * time.Millisecond)
			return nil
		}}
		a := w.take("a", cfg)
		a.settled()
		require.Zero(t, most.Load(), "what has no owner is owned at once")
		so := w.so()
		b := w.take("b", cfg)
		b.settled()
		require.Equal(t, []int{150, 150}, owned(a, b))
		moved, gap := w.since(so)
		require.Equal(t, 150, moved)
		require.Zero(t, gap)
		require.EqualValues(t, mostPreparing, most.Load())
	})
}

// What waits until it can be prepared is owned at once when its owner has died.
func TestPrepareOfWhatHasNoOwner(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cfg := Config{Count: 200, Prepare: func(context.Context, int) error { time.Sleep(20 * time.Second); return nil }}
		a := w.take("a", cfg)
		a.settled()
		b := w.take("b", cfg)
		time.Sleep(6 * time.Second)
		a.crash()
		time.Sleep(ttl + time.Second)
		require.Equal(t, []int{200 - mostPreparing}, owned(b))
	})
}

// An Own that takes longer than an offer lives passes its partition on all the same.
func TestASlowOwner(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cfg := Config{Count: 2, Own: func(ctx context.Context, o Owned) error {
			<-ctx.Done()
			time.Sleep(2*ttl + 3*time.Second)
			return nil
		}}
		a := w.take("a", cfg)
		a.settled()
		so := w.so()
		b := w.take("b", cfg)
		time.Sleep(time.Minute)
		require.Equal(t, []int{1, 1}, owned(a, b))
		moved, gap := w.since(so)
		require.Equal(t, 1, moved)
		require.Zero(t, gap)
		require.EqualValues(t, 1, a.Info().Moves)
	})
}

// A node that joins many partitions takes few at a time, so that none waits long for the store without an
// owner; and Owns that are slow to end hold up no others.
func TestManyMoveInTurn(t *testing.T) {
	for _, slow := range []time.Duration{0, 5 * time.Second} {
		bubble(t, func(t *testing.T, w *world) {
			var mu sync.Mutex
			ended, gap := map[int]time.Time{}, time.Duration(0)
			w.slow = 2 * time.Millisecond
			join := func(id string) *node { // not noted by the judge, who compares each run with all others
				n := w.node(id)
				p, err := Start(t.Context(), n.group, Config{Name: "p", Count: 1200, Settle: time.Second, Own: func(ctx context.Context, o Owned) error {
					mu.Lock()
					if at, ok := ended[o.Number]; ok {
						gap = max(gap, time.Since(at))
					}
					mu.Unlock()
					<-ctx.Done()
					mu.Lock()
					ended[o.Number] = time.Now()
					mu.Unlock()
					time.Sleep(slow)
					return nil
				}})
				require.NoError(t, err)
				n.Partitions = p
				return n
			}
			a := join("a")
			a.settled()
			b := join("b")
			time.Sleep(7 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, 600, len(ended))
			if slow == 0 {
				require.Equal(t, []int{600, 600}, owned(a, b))
				require.Less(t, gap, 25*time.Millisecond)
				ready, err := a.keeper.List(t.Context(), "partition/g/p/ready/")
				require.NoError(t, err)
				require.Empty(t, ready)
			}
		})
	}
}

// An Own that does not end keeps its partition, and Health says so.
func TestAnOwnerThatDoesNotStop(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		release := make(chan struct{})
		a := w.take("a", Config{Count: 2, Own: func(ctx context.Context, o Owned) error {
			if o.Number == 0 {
				<-release
				return nil
			}
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), ErrMoved)
			return nil
		}})
		a.settled()
		require.NoError(t, a.Health(t.Context()))
		b := w.take("b", Config{Count: 2})
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := a.Stop(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "1 are not given up yet")
		require.ErrorContains(t, a.Health(t.Context()), "partition 0: Own has not returned")
		require.Equal(t, []int{1}, b.Owned())
		close(release)
		b.settled()
		require.Equal(t, []int{0, 1}, b.Owned())
	})
}

// What an Own does when the deadline of Stop has ended it, it does under a lease that stands.
func TestTheLeaseOutlivesTheDeadlineOfStop(t *testing.T) {
	for _, cfg := range []Config{{Count: 2}, {Keys: []string{"x", "y"}}} {
		bubble(t, func(t *testing.T, w *world) {
			var flushed, moved atomic.Int32
			own := func(ctx context.Context, o Owned) error {
				<-ctx.Done()
				if time.Sleep(time.Second); o.CheckAlive() {
					flushed.Add(1)
				}
				if errors.Is(context.Cause(ctx), ErrMoved) {
					moved.Add(1)
				}
				return nil
			}
			a := w.take("a", Config{Count: cfg.Count, Keys: cfg.Keys, Own: own})
			a.settled()
			w.take("b", Config{Count: cfg.Count, Keys: cfg.Keys, Prepare: func(ctx context.Context, _ int) error {
				<-ctx.Done()
				return ctx.Err()
			}})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			require.ErrorIs(t, a.Stop(ctx), context.DeadlineExceeded)
			<-a.Done()
			require.EqualValues(t, 2, flushed.Load())
			require.EqualValues(t, 2, moved.Load())
		})
	}
}

// An Own that fails is called again under the same lease, and after five times elsewhere.
func TestAFailingOwn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		calls := map[string]int{}
		tokens := map[lease.Token]bool{}
		fails := Config{Count: 4, Own: func(ctx context.Context, o Owned) error {
			if o.Number == 1 {
				w.mu.Lock()
				calls["a"]++
				tokens[o.Token()] = true
				n := calls["a"]
				w.mu.Unlock()
				if n%2 == 0 {
					panic("no")
				}
				return errors.New("sick")
			}
			<-ctx.Done()
			return nil
		}}
		a := w.take("a", fails)
		time.Sleep(20 * time.Second)
		w.mu.Lock()
		require.Greater(t, calls["a"], mostFailures, "there is no other node")
		require.Len(t, tokens, 1)
		w.mu.Unlock()
		b := w.take("b", Config{Count: 4})
		time.Sleep(2 * time.Minute)
		require.Contains(t, b.Owned(), 1)
		require.Equal(t, 4, len(a.Owned())+len(b.Owned()))
	})
}

// What a node could not prepare it takes up at once when its owner has gone.
func TestAFailingPrepareOfWhatBecomesFree(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.take("a", Config{Count: 1})
		a.settled()
		b := w.take("b", Config{Count: 1, Prepare: func(context.Context, int) error { return errors.New("cold") }})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = a.Stop(ctx) // until its deadline, as b is never ready
		time.Sleep(time.Second)
		require.Equal(t, []int{0}, b.Owned())
	})
}

// While nodes differ in Count only the partitions of the latest are owned, and none before the last
// of the others is given up.
func TestAnotherCount(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var hold atomic.Bool
		hold.Store(true)
		defer hold.Store(false)
		a := w.take("a", Config{Count: 8, Own: func(ctx context.Context, o Owned) error {
			<-ctx.Done()
			for o.Number == 3 && hold.Load() {
				time.Sleep(time.Second)
			}
			return nil
		}})
		a.settled()
		b := w.take("b", Config{Count: 16})
		time.Sleep(time.Minute)
		require.Equal(t, []int{1, 0}, owned(a, b), "one Own has not returned, and its lease lives")
		hold.Store(false)
		b.settled()
		require.Equal(t, []int{0, 16}, owned(a, b))
		require.NoError(t, b.stop())
		time.Sleep(5 * time.Second)
		require.Equal(t, []int{8}, owned(a))
	})
}

// Keys mean the same in every list.
func TestAnotherListOfKeys(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.take("a", Config{Keys: []string{"x", "y/1", "z"}})
		a.settled()
		b := w.take("b", Config{Keys: []string{"w", "x", "y/1"}})
		b.settled()
		require.Equal(t, []int{3, 1}, owned(a, b), "z runs until its node stops")
		require.NoError(t, a.stop())
		time.Sleep(time.Minute)
		require.Equal(t, []int{3}, owned(b))
	})
}

func TestDaemons(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		run := func(id string, n int) *node {
			x := w.node(id)
			p, err := Daemons(t.Context(), x.group, "importer", n, func(ctx context.Context, i int) error {
				<-ctx.Done()
				return nil
			})
			require.NoError(t, err)
			x.Partitions = p
			return x
		}
		a, b := run("a", 4), run("b", 4)
		a.settled()
		require.Equal(t, []int{2, 2}, owned(a, b))
		c := run("c", 2)
		time.Sleep(10 * time.Second)
		require.Equal(t, []int{2, 0, 0}, owned(a, b, c))
		require.NoError(t, a.stop())
		time.Sleep(10 * time.Second)
		require.Equal(t, []int{0, 2}, owned(b, c), "nodes with another number begin none")
		a = run("a", 4)
		require.NoError(t, c.stop())
		time.Sleep(10 * time.Second)
		require.Equal(t, []int{2, 2}, owned(a, b))
	})
}

// The strategy is the user's: pinned partitions, and one that fails.
func TestStrategies(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var answer atomic.Pointer[func(placement.View) []string]
		say := func(f func(placement.View) []string) { answer.Store(&f) }
		pinned := func(v placement.View) []string {
			target := placement.Balanced{}.Target(v)
			target[0], target[1] = "b", "b"
			return target
		}
		say(pinned)
		cfg := Config{Count: 4, Strategy: placement.StrategyFunc(func(v placement.View) []string { return (*answer.Load())(v) })}
		a, b := w.take("a", cfg), w.take("b", cfg)
		b.settled()
		require.Subset(t, b.Owned(), []int{0, 1})
		say(func(placement.View) []string { panic("no") })
		c := w.take("c", cfg)
		c.settled()
		require.Equal(t, 4, len(a.Owned())+len(b.Owned())+len(c.Owned()))
		require.NotEmpty(t, c.Owned())
		say(func(placement.View) []string { time.Sleep(time.Hour); return nil })
		require.NoError(t, c.stop())
		time.Sleep(10 * time.Second)
		require.Equal(t, 4, len(a.Owned())+len(b.Owned()))
		say(pinned)
		time.Sleep(2 * time.Hour)
	})
}

func TestBadConfig(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.node("a")
		own := func(context.Context, Owned) error { return nil }
		for want, c := range map[string]Config{
			"Own: invalid: nil":                 {Name: "p", Count: 1},
			"Count: invalid: 0, must be 1 to":   {Name: "p", Own: own},
			"Count: invalid: 65537":             {Name: "p", Own: own, Count: MaxCount + 1},
			"Count, Keys: invalid":              {Name: "p", Own: own, Count: 1, Keys: []string{"x"}},
			"Keys: invalid: 0":                  {Name: "p", Own: own, Keys: []string{}},
			`Keys: invalid: "x", must be there`: {Name: "p", Own: own, Keys: []string{"x", "x"}},
			`Keys: invalid: ""`:                 {Name: "p", Own: own, Keys: []string{""}},
			"partition name: invalid: empty":    {Count: 1, Own: own},
			"Settle: invalid: 1m1s":             {Name: "p", Own: own, Count: 1, Settle: 61 * time.Second},
			"Strategy: invalid: nil":            {Name: "p", Own: own, Count: 1, Strategy: placement.StrategyFunc(nil)},
		} {
			_, err := Start(t.Context(), n.group, c)
			require.ErrorIs(t, err, lease.ErrInvalid, want)
			require.ErrorContains(t, err, want)
		}
		_, err := Start(t.Context(), &membership.Group{}, Config{Name: "p", Count: 1, Own: own})
		require.ErrorIs(t, err, lease.ErrInvalid)
		_, err = Start(inputtest.None, n.group, Config{Name: "p", Count: 1, Own: own})
		require.ErrorIs(t, err, lease.ErrInvalid)
		_, err = Daemons(t.Context(), n.group, "d", 1, nil)
		require.ErrorIs(t, err, lease.ErrInvalid)
		inputtest.Zeros(t, nil, new(Partitions))
		n.start(Config{Count: 1})
		_, err = Start(t.Context(), n.group, Config{Name: "p", Count: 1, Own: own})
		require.ErrorIs(t, err, lease.ErrNameInUse)
	})
}

// Partitions that were stopped can be started again on the same Keeper, also those with Keys.
func TestStopAndStartAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.node("a")
		for _, cfg := range []Config{{Count: 2}, {Name: "k", Keys: []string{"x", "y"}}} {
			for range 2 {
				n.start(cfg)
				n.settled()
				require.Len(t, n.Owned(), 2)
				require.NoError(t, n.Stop(t.Context()))
			}
		}
	})
}
