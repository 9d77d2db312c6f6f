package lease_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// tattler notes what it is asked to watch.
type tattler struct {
	*memory.Store
	mu             sync.Mutex
	all, deletions []string // prefixes
	silent         atomic.Bool
}

func (s *tattler) note(of *[]string, prefix string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*of = append(*of, prefix)
}

func (s *tattler) noted(of *[]string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(*of)
}

func (s *tattler) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	if of.Deletions {
		s.note(&s.deletions, of.Prefix)
	} else {
		s.note(&s.all, of.Prefix)
	}
	return func(yield func(store.Event, error) bool) {
		for ev, err := range s.Store.Watch(ctx, of) {
			if (ev.Kind != store.EventProgress || !s.silent.Load()) && !yield(ev, err) {
				return
			}
		}
	}
}

// Only who asks for records gets what is put.
func TestTheKeeperWatchesDeletionsAlone(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		s := &tattler{Store: db}
		k := start(t, s, "a")
		k.hold("job")
		time.Sleep(10 * ttl)
		require.Empty(t, s.noted(&s.all))
		require.Len(t, s.noted(&s.deletions), 1, "it says that it runs")
		s.silent.Store(true)
		time.Sleep(10 * ttl)
		require.Empty(t, s.noted(&s.all))
		require.Greater(t, len(s.noted(&s.deletions)), 3, "begun anew now and then")
		_, err := k.Watch("team/", func(store.Event) {})
		require.NoError(t, err)
		synctest.Wait()
		require.Contains(t, s.noted(&s.all), "team/")
		require.NotContains(t, s.noted(&s.deletions), "team/")
	})
}

// The look that follows the beginning of a watch is repeated until it succeeds,
// soon and then less often.
func TestTheLookAfterTheBeginningOfAWatchIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, b := start(t, db, "a", func(c *lease.Config) { c.PollMin, c.PollMax = time.Hour, time.Hour }), start(t, db, "b")
		theirs, waiting := b.hold("theirs"), a.lease("theirs")
		mustNotWin(t, waiting)
		time.Sleep(time.Second)
		free := make(chan time.Time, 1)
		waiting.OnFree(func() { free <- time.Now() })
		synctest.Wait()
		var listed atomic.Int64
		a.store.SetRule(func(c faultstore.Call) faultstore.Fault {
			switch c.Op {
			case faultstore.ListSession:
				listed.Add(1)
			case faultstore.Get: // nor can it be looked by name
			default:
				return faultstore.Fault{}
			}
			return faultstore.Fault{Kind: faultstore.Drop}
		})
		a.store.CutWatches()
		require.NoError(t, theirs.Release(t.Context()))
		time.Sleep(3 * time.Second)
		require.Empty(t, free)
		require.Greater(t, listed.Load(), int64(2))
		before := listed.Load()
		time.Sleep(5 * ttl)
		require.Less(t, listed.Load()-before, int64(10), "once per TTL in the end, and for each new watch")
		a.store.SetRule(nil)
		back := time.Now()
		require.LessOrEqual(t, (<-free).Sub(back), ttl)
	})
}

// A request may land much later than anybody looks for it in particular. While
// the session it was made under lives, it is found within a TTL.
func TestALateClaimIsFoundHoweverLateItLands(t *testing.T) {
	for name, less := range map[string]func(*memory.Store) store.Store{
		"everything is listed":  func(s *memory.Store) store.Store { return sessionless(s) },
		"sessions are listed":   func(s *memory.Store) store.Store { return s },
		"nothing is told":       func(s *memory.Store) store.Store { return blind(s) },
		"nor can it be listed":  func(s *memory.Store) store.Store { return listless{s} },
		"deletions, no listing": func(s *memory.Store) store.Store { return watchesAlone{listless{s}, s} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, db *memory.Store) {
				a := start(t, less(db), "a")
				a.hold("another") // keeps the session alive
				const late = 25 * ttl
				a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.LandLate, Delay: late})
				began := time.Now()
				la := a.lease("job")
				mustWin(t, la) // by the next attempt
				require.NoError(t, la.Release(t.Context()))
				require.NoError(t, la.Close(t.Context()))
				time.Sleep(time.Until(began.Add(late - time.Second)))
				requireFree(t, db, "job")
				made := db.Stats().Acquire
				time.Sleep(time.Second + ttl + time.Second)
				require.Equal(t, made+1, db.Stats().Acquire, "it landed")
				requireFree(t, db, "job")
			})
		})
	}
}

// watchesAlone is a store that can watch and not list.
type watchesAlone struct {
	listless
	store.Watcher
}

// When its session is over nothing can land any more.
func TestASuspicionEndsWithTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, listless{db}, "a")
		anchor := a.hold("another")
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.Drop})
		la := a.lease("job")
		mustWin(t, la)
		require.NoError(t, la.Close(t.Context()))
		looks := func() int { // those for "job"
			var n atomic.Int64
			a.store.SetRule(func(c faultstore.Call) faultstore.Fault {
				for _, name := range c.Names {
					if c.Op == faultstore.Get && name == "job" {
						n.Add(1)
					}
				}
				return faultstore.Fault{}
			})
			time.Sleep(10 * ttl)
			return int(n.Load())
		}
		require.InDelta(t, 10, looks(), 1, "once per TTL")
		require.NoError(t, anchor.Release(t.Context()))
		time.Sleep(3 * ttl) // the session is closed when nothing has counted on it for a TTL
		require.Zero(t, looks())
	})
}

// Very many names that something may land under are not asked for one by one.
func TestVeryManySuspectsAreListed(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		const names, late = 1500, 20 * ttl
		a := start(t, db, "a", func(c *lease.Config) { c.NamesPerSession = 2 * names })
		a.hold("another")
		a.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.LandLate, Delay: late})
		began := time.Now()
		var hs []*lease.Handle
		errs := make(chan error, names)
		for _, name := range manyNames(names) {
			h := a.lease(name)
			hs = append(hs, h)
			go func() {
				_, err := h.Acquire(within(t, time.Second))
				errs <- err
			}()
		}
		for range names {
			require.True(t, errors.Is(<-errs, context.DeadlineExceeded))
		}
		for _, h := range hs {
			require.NoError(t, h.Close(t.Context()))
		}
		a.store.SetRule(nil)
		time.Sleep(time.Until(began.Add(10 * ttl)))
		before := db.Stats()
		time.Sleep(5 * ttl)
		require.Equal(t, before.Get, db.Stats().Get)
		require.Equal(t, before.List, db.Stats().List)
		require.InDelta(t, 5, db.Stats().ListSession-before.ListSession, 3, "once per TTL, and after each beginning of a watch")
		time.Sleep(time.Until(began.Add(late + 2*time.Second)))
		time.Sleep(ttl + time.Second)
		for rec := range db.List(t.Context(), store.Query{Prefix: "many/"}) {
			require.Fail(t, "stands", rec.Name)
		}
	})
}
