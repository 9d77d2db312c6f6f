package lease_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

// hinting is the store as one that gives every hint.
func hinting(s *memory.Store) *faultstore.Hinting { return faultstore.NewHinting(s, nil) }

// byHand is a store whose hints are given by the test.
type byHand struct {
	watchless
	hints func(ctx context.Context, yield func(lease.Hint, error) bool)
	asked *atomic.Int64
}

func (s byHand) Hints(ctx context.Context, _ string) iter.Seq2[lease.Hint, error] {
	return func(yield func(lease.Hint, error) bool) {
		s.asked.Add(1)
		s.hints(ctx, yield)
	}
}

func hintsByHand(s *memory.Store, hints func(context.Context, func(lease.Hint, error) bool)) byHand {
	return byHand{watchless{s, s, s}, hints, new(atomic.Int64)}
}

// passing passes on what comes by a channel.
func passing(ch <-chan lease.Hint) func(context.Context, func(lease.Hint, error) bool) {
	return func(ctx context.Context, yield func(lease.Hint, error) bool) {
		if !yield(lease.Hint{}, nil) {
			return
		}
		for {
			select {
			case h := <-ch:
				if !yield(h, nil) {
					return
				}
			case <-ctx.Done():
				yield(lease.Hint{}, ctx.Err())
				return
			}
		}
	}
}

// waits begins to wait for a name.
func waits(h *lease.Handle) <-chan error {
	heard := make(chan error, 1)
	go func() { heard <- h.Wait(context.Background()) }()
	return heard
}

func TestAHintWakesAWaiterAtOnce(t *testing.T) {
	for _, name := range []string{"of the name", "of any"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store) {
				store := hinting(s)
				if name == "of any" {
					store = faultstore.NewHinting(s, func(lease.Hint) []lease.Hint { return []lease.Hint{{}} })
				}
				a, b := start(t, store, "a"), start(t, store, "b")
				la, lb := a.hold("job"), b.lease("job")
				heard := waits(lb)
				time.Sleep(3 * ttl)
				require.Empty(t, heard)
				require.NoError(t, la.Release(t.Context()))
				synctest.Wait()
				require.Len(t, heard, 1, "no time has passed")
				require.NoError(t, <-heard)
				mustWin(t, lb)
			})
		})
	}
}

func TestAHintIsNotBelieved(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		ch := make(chan lease.Hint)
		store := hintsByHand(s, passing(ch))
		a, b := start(t, s, "a"), start(t, store, "b")
		a.hold("job")
		own := b.hold("own")
		lost := watchLosses(own)
		heard := waits(b.lease("job"))
		var events told
		stop, err := b.Watch("", events.add)
		require.NoError(t, err)
		defer stop()
		require.ElementsMatch(t, []string{"+job", "+own", "synced"}, events.take())
		for _, name := range []string{"job", "own", "", "never", "/bad//name", "\xff"} {
			ch <- lease.Hint{Name: name}
			time.Sleep(2 * time.Second)
		}
		require.Empty(t, heard)
		require.Empty(t, lost.all())
		require.Empty(t, events.take())
		require.True(t, own.CheckAlive())
	})
}

func TestALossIsFoundByAHint(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		n := start(t, hinting(s), "a")
		h := n.hold("job")
		lost := watchLosses(h)
		time.Sleep(3 * time.Second) // PollMin after the hint of its own acquisition
		rec, _ := standing(t, s, "job")
		_, err := s.Release(t.Context(), []lease.Held{rec.Held()})
		require.NoError(t, err)
		lost.one(t, lease.ErrRecordGone) // no time has passed
	})
}

func TestFollowersLookWhenTheyAreHinted(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a, b := start(t, s, "a"), start(t, hinting(s), "b")
		x := a.hold("team/x")
		var events told
		stop, err := b.Watch("team/", events.add)
		require.NoError(t, err)
		require.Equal(t, []string{"+team/x", "synced"}, events.take())
		time.Sleep(time.Minute)
		lists := s.Stats().List
		y := a.hold("team/y")
		a.hold("other")
		require.Equal(t, []string{"+team/y"}, events.take(), "no time has passed")
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, x.Release(t.Context()))
		require.Equal(t, []string{"-team/x"}, events.take())
		require.NoError(t, y.Release(t.Context()))
		require.Empty(t, events.take(), "looks are 50 ms apart")
		time.Sleep(50 * time.Millisecond)
		require.Equal(t, []string{"-team/y"}, events.take())
		require.Equal(t, lists, s.Stats().List, "names were looked at alone")
		stop()
	})
}

// TestWhatHintsMissIsFound: of the changes no hint is given, or one too early.
func TestWhatHintsMissIsFound(t *testing.T) {
	for _, c := range []struct {
		name   string
		early  bool
		within time.Duration
	}{{"missing", false, 10 * time.Second}, {"early", true, 1500 * time.Millisecond}} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store) {
				ch := make(chan lease.Hint)
				a, b := start(t, s, "a"), start(t, hintsByHand(s, passing(ch)), "b")
				la := a.hold("job/x")
				heard := waits(b.lease("job/x"))
				var events told
				stop, err := b.Watch("job/", events.add)
				require.NoError(t, err)
				defer stop()
				time.Sleep(5 * time.Minute)
				events.take()
				if c.early {
					ch <- lease.Hint{Name: "job/x"}
					synctest.Wait()
				}
				// Another name is hinted of all the time.
				busy, quiet := context.WithCancel(t.Context())
				defer func() { quiet(); time.Sleep(time.Second) }()
				go func() {
					for busy.Err() == nil {
						select {
						case ch <- lease.Hint{Name: "job/other"}:
						case <-busy.Done():
						}
						time.Sleep(300 * time.Millisecond)
					}
				}()
				require.NoError(t, la.Release(t.Context()))
				time.Sleep(c.within)
				synctest.Wait()
				require.Len(t, heard, 1)
				if !c.early {
					require.Equal(t, []string{"-job/x"}, events.take())
				}
			})
		})
	}
}

// TestAnExpiryIsLookedForWithoutAHint: the store that is told of nothing when a record expires
// says how long it has left.
func TestAnExpiryIsLookedForWithoutAHint(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a, b := start(t, s, "a"), start(t, hintsByHand(s, passing(nil)), "b")
		a.hold("job")
		heard := waits(b.lease("job"))
		time.Sleep(5 * time.Minute)
		a.crash()
		rec, _ := standing(t, s, "job")
		time.Sleep(rec.Left + 250*time.Millisecond)
		synctest.Wait()
		require.Len(t, heard, 1)
	})
}

func TestAStormOfHintsCostsNoMoreThanPolling(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		ch := make(chan lease.Hint)
		a, b := start(t, s, "a"), start(t, hintsByHand(s, passing(ch)), "b")
		for i := range 20 {
			a.hold(fmt.Sprint("job/", i))
			heard := waits(b.lease(fmt.Sprint("job/", i)))
			defer func() { require.Empty(t, heard) }()
			b.hold(fmt.Sprint("own/", i))
		}
		stop, err := b.Watch("", func(lease.Event) {})
		require.NoError(t, err)
		defer stop()
		time.Sleep(time.Minute)
		before := s.Stats()
		for i := range 10_000 {
			ch <- lease.Hint{Name: fmt.Sprint("job/", i%20)}
			ch <- lease.Hint{Name: fmt.Sprint("own/", i%20)}
			time.Sleep(time.Millisecond)
		}
		after := s.Stats()
		require.LessOrEqual(t, after.Get-before.Get, uint64(200+200+10+10), "waiters, the follower, terms, polls")
		require.LessOrEqual(t, after.List-before.List, uint64(5))
		require.Greater(t, after.Get-before.Get, uint64(300))
		before = s.Stats()
		for range 10_000 {
			ch <- lease.Hint{}
			time.Sleep(time.Millisecond)
		}
		after = s.Stats()
		require.LessOrEqual(t, after.Get-before.Get, uint64(200+10))
		require.LessOrEqual(t, after.List-before.List, uint64(200+10))
	})
}

// TestRudeHinters: a store whose hints do as they like costs a poll's pace, and no more.
func TestRudeHinters(t *testing.T) {
	for name, hints := range map[string]func(context.Context, func(lease.Hint, error) bool){
		"panics":        func(context.Context, func(lease.Hint, error) bool) { panic("rude") },
		"leaves":        func(context.Context, func(lease.Hint, error) bool) { runtime.Goexit() },
		"ends":          func(context.Context, func(lease.Hint, error) bool) {},
		"fails":         func(_ context.Context, yield func(lease.Hint, error) bool) { yield(lease.Hint{}, errors.New("no")) },
		"begins, ends":  func(_ context.Context, yield func(lease.Hint, error) bool) { yield(lease.Hint{}, nil) },
		"begins, fails": func(_ context.Context, yield func(lease.Hint, error) bool) { yield(lease.Hint{}, nil); panic("rude") },
		"hangs":         func(ctx context.Context, _ func(lease.Hint, error) bool) { <-ctx.Done() },
		"begins, hangs": func(ctx context.Context, yield func(lease.Hint, error) bool) {
			yield(lease.Hint{}, nil)
			<-ctx.Done()
		},
		"cannot": func(_ context.Context, yield func(lease.Hint, error) bool) {
			yield(lease.Hint{}, lease.ErrUnsupported)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store) {
				store := hintsByHand(s, hints)
				a, b := start(t, s, "a"), start(t, store, "b")
				la := a.hold("job")
				heard := waits(b.lease("job"))
				var events told
				stop, err := b.Watch("job", events.add)
				require.NoError(t, err)
				defer stop()
				before := s.Stats()
				time.Sleep(time.Minute)
				after := s.Stats()
				require.LessOrEqual(t, store.asked.Load(), int64(130))
				require.LessOrEqual(t, after.Get-before.Get, uint64(140))
				require.LessOrEqual(t, after.List-before.List, uint64(200))
				events.take()
				require.NoError(t, la.Release(t.Context()))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				require.Len(t, heard, 1)
				require.Equal(t, []string{"-job"}, events.take())
			})
		})
	}
}

// TestHintsThatNeverComeBack: the store does not heed its context either.
func TestHintsThatNeverComeBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		over := make(chan struct{})
		defer close(over)
		store := hintsByHand(s, func(_ context.Context, yield func(lease.Hint, error) bool) {
			yield(lease.Hint{}, nil)
			<-over
		})
		a, b := start(t, s, "a"), start(t, store, "b")
		la := a.hold("job")
		var events told
		stop, err := b.Watch("job", events.add)
		require.NoError(t, err)
		defer stop()
		time.Sleep(5 * time.Minute)
		require.EqualValues(t, 1, store.asked.Load())
		events.take()
		require.NoError(t, la.Release(t.Context()))
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"-job"}, events.take(), "it polls as without hints")
	})
}

// TestIdleRequestsOverHints: what it costs to wait for a name, and to follow a prefix, of
// which nothing changes. Reconciling is in it: 6 listings in a minute.
func TestIdleRequestsOverHints(t *testing.T) {
	for _, c := range []struct {
		name      string
		of        func(*memory.Store) lease.Store
		gets, ls  uint64
		wakes     time.Duration // at most
		follows   time.Duration
		followers int
	}{
		{name: "polling", of: func(s *memory.Store) lease.Store { return watchless{s, s, s} }, gets: 8, ls: 75, wakes: 10 * time.Second, follows: 1500 * time.Millisecond},
		{name: "hints", of: func(s *memory.Store) lease.Store { return hinting(s) }, gets: 13, ls: 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store) {
				a, b := start(t, s, "a"), start(t, c.of(s), "b")
				la := a.hold("job")
				b.hold("own")
				heard := waits(b.lease("job"))
				var events told
				stop, err := b.Watch("job", events.add)
				require.NoError(t, err)
				defer stop()
				time.Sleep(time.Minute)
				before := s.Stats()
				time.Sleep(10 * time.Minute)
				after := s.Stats()
				gets, lists := (after.Get-before.Get)/10, (after.List-before.List)/10
				t.Logf("in a minute: %d gets, %d lists (a's reconciling included)", gets, lists)
				require.LessOrEqual(t, gets, c.gets)
				require.LessOrEqual(t, lists, c.ls)
				events.take()
				require.NoError(t, la.Release(t.Context()))
				time.Sleep(c.wakes)
				synctest.Wait()
				require.Len(t, heard, 1)
				require.Equal(t, []string{"-job"}, events.take())
			})
		})
	}
}

// TestHintsThatAreNotSupportedAfterAll: who gave one and then can't is polled as before.
func TestHintsThatAreNotSupportedAfterAll(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		store := hintsByHand(s, func(_ context.Context, yield func(lease.Hint, error) bool) {
			_ = yield(lease.Hint{}, nil) && yield(lease.Hint{}, lease.ErrUnsupported)
		})
		a := start(t, s, "a")
		b := start(t, store, "b", func(c *lease.Config) { c.PollMin, c.PollMax = time.Second, time.Hour })
		job := a.hold("job")
		var events told
		stop, err := b.Watch("", events.add)
		require.NoError(t, err)
		defer stop()
		time.Sleep(10 * time.Second)
		events.take()
		require.NoError(t, job.Release(t.Context()))
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"-job"}, events.take())
		require.EqualValues(t, 1, store.asked.Load())
	})
}
