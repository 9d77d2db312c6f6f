package lease_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
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

// told collects events as text: "+name" "-name" and "synced".
type told struct {
	mu     sync.Mutex
	events []string
}

func (s *told) add(ev store.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch ev.Kind {
	case store.EventPut:
		s.events = append(s.events, "+"+ev.Record.Name)
	case store.EventDelete:
		s.events = append(s.events, "-"+ev.Record.Name)
	case store.EventSynced:
		s.events = append(s.events, "synced")
	case store.EventBad:
		s.events = append(s.events, "bad "+ev.Record.Name)
	}
}

// take returns what was told since the last take.
func (s *told) take() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.events
	s.events = nil
	return got
}

func TestWatchTellsASnapshotAndThenChanges(t *testing.T) {
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
		a.hold("team/x")
		a.hold("other")
		var s told
		stop, err := b.Watch("team/", s.add)
		require.NoError(t, err)
		require.Equal(t, []string{"+team/x", "synced"}, s.take())
		y := a.hold("team/y")
		require.NoError(t, y.Release(t.Context()))
		require.Equal(t, []string{"+team/y", "-team/y"}, s.take())

		// After an interruption: the differences alone, and no second snapshot.
		b.store.Partition()
		z := a.hold("team/z")
		mustWin(t, y)
		require.NoError(t, y.Release(t.Context()))
		time.Sleep(time.Minute)
		require.Empty(t, s.take())
		b.store.Heal()
		time.Sleep(3 * time.Second)
		require.Equal(t, []string{"+team/z"}, s.take())
		b.store.Partition()
		require.NoError(t, z.Release(t.Context()))
		b.store.Heal()
		time.Sleep(3 * time.Second)
		require.Equal(t, []string{"-team/z"}, s.take())

		stop()
		stop()
		mustWin(t, z)
		require.Empty(t, s.take(), "nothing after stop")
	})
}

func TestWatchPollsWhereTheStoreCannot(t *testing.T) {
	onOne(t, func(t *testing.T, db *memory.Store, a *node) {
		b := start(t, blind(db), "b")
		x := a.hold("team/x")
		var s told
		require.Zero(t, b.LookEvery())
		stop, err := b.Watch("team/", s.add)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 1500*time.Millisecond, b.LookEvery())
		require.Equal(t, []string{"+team/x", "synced"}, s.take())
		lists := db.Stats().List
		time.Sleep(100 * time.Second)
		require.InDelta(t, 100, db.Stats().List-lists, 40, "PollMin apart")
		require.Empty(t, s.take(), "nothing changed")
		a.hold("team/y")
		require.NoError(t, x.Release(t.Context()))
		time.Sleep(2 * time.Second)
		require.ElementsMatch(t, []string{"+team/y", "-team/x"}, s.take())
		mustWin(t, x)
		time.Sleep(2 * time.Second)
		require.NoError(t, x.Release(t.Context()))
		mustWin(t, x)
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"+team/x", "+team/x"}, s.take(), "another ownership is told, what was between is not")
		b.store.Partition()
		time.Sleep(time.Minute)
		b.store.Heal()
		time.Sleep(5 * time.Second)
		require.Empty(t, s.take(), "a failed listing is no news")
		stop()
		synctest.Wait()
		lists = db.Stats().List
		time.Sleep(time.Minute)
		// b reconciles by listing once in a TTL, which may begin and end the minute; a, that
		// watches, once in six.
		require.LessOrEqual(t, db.Stats().List, lists+60/uint64(ttl/time.Second)+1+1, "only reconciling lists on")
	})
}

func TestWatchRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		// Through faultstore, which says only when asked that it can't watch.
		a := start(t, listless{db}, "a")
		_, err := a.Watch("", func(store.Event) {})
		require.ErrorIs(t, err, lease.ErrUnsupported)
		_, err = start(t, db, "b").Watch("", nil)
		require.ErrorIs(t, err, lease.ErrInvalid)
	})
}

func TestWatchSurvivesItsUserAndBadRecords(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, &foreignStore{Store: db, name: "bad"}, "a")
		var s told
		var stop func()
		stop, err := a.Watch("", func(ev store.Event) {
			s.add(ev)
			switch {
			case ev.Record.Name == "x":
				panic("harms nobody")
			case ev.Record.Name == "y":
				stop()
			}
		})
		require.NoError(t, err)
		require.Equal(t, []string{"bad bad", "synced"}, s.take())
		for _, name := range []string{"x", "y", "z"} {
			a.hold(name)
			synctest.Wait()
		}
		require.Equal(t, []string{"+x", "+y"}, s.take(), "told again after a panic, and stopped from within")
	})
}

func TestWatchEndsWithTheKeeper(t *testing.T) {
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
		var s told
		_, err := b.Watch("", s.add)
		require.NoError(t, err)
		require.Equal(t, []string{"synced"}, s.take())
		require.NoError(t, b.Close(t.Context()))
		a.hold("job")
		require.Empty(t, s.take())
	})
}

// What vanished before a watch was up is found by the listing that follows it.
func TestAWatchThatComesBackIsFollowedByAListing(t *testing.T) {
	watched(t, func(t *testing.T, db store.Store) {
		a := start(t, db, "a")
		la := a.lease("job")
		lost := watchLosses(la)
		a.rule(faultstore.Watch, faultstore.Fault{Kind: faultstore.Delay, Delay: ttl / 8})
		mustWin(t, la)
		rec, _ := standing(t, db, "job")
		remove(t, db, rec)
		time.Sleep(ttl + time.Second)
		require.False(t, la.CheckAlive())
		lost.one(t, lease.ErrRecordGone)
	})
}

func manyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("many/", i)
	}
	return names
}

// holdings is what FollowHolder told.
type holdings struct {
	mu   sync.Mutex
	told []lease.Holding
}

func (s *holdings) add(h lease.Holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, h)
}

// take returns what was told since the last call, as "free", "unknown" and the holders' IDs.
func (s *holdings) take() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, h := range s.told {
		if h.State == lease.NameHeld {
			all = append(all, h.Record.Owner.ID)
		} else {
			all = append(all, []string{"unknown", "free", "held"}[h.State])
		}
	}
	s.told = nil
	return strings.Join(all, " ")
}

func (n *node) followHolder(name string) *holdings {
	n.t.Helper()
	var s holdings
	stop, err := n.FollowHolder(name, s.add)
	require.NoError(n.t, err)
	n.t.Cleanup(stop)
	return &s
}

func TestFollowHolder(t *testing.T) {
	each(t, map[string]func(s *memory.Store) store.Store{
		"all is told":     func(s *memory.Store) store.Store { return s },
		"nothing is told": func(s *memory.Store) store.Store { return blind(s) },
		"nor listed":      func(s *memory.Store) store.Store { return listless{s} },
	}, func(t *testing.T, s *memory.Store, less func(s *memory.Store) store.Store) {
		store := less(s)
		a, b, w := start(t, store, "a"), start(t, store, "b"), start(t, store, "w")
		heard := w.followHolder("job")
		soon := func() string { time.Sleep(3 * time.Second); return heard.take() }
		require.Equal(t, "free", soon())
		la, lb := a.hold("job"), b.lease("job")
		near := a.hold("job2") // and what begins with its name
		a.hold("job/1")
		require.Equal(t, "a", soon())
		o := offerOf(t, lb)
		if la.Transfer(t.Context(), o) == nil { // its token, and then that of the adoption
			mustAdopt(t, lb, o)
			require.Contains(t, []string{"b", "b b"}, soon())
		} else {
			require.NoError(t, la.Release(t.Context()))
			mustWin(t, lb)
			require.Contains(t, soon(), "b")
		}
		require.NoError(t, lb.Release(t.Context()))
		require.Equal(t, "free", soon())
		require.NoError(t, near.Release(t.Context()))
		require.Empty(t, soon())
		mustWin(t, lb)
		require.Equal(t, "b", soon())
		time.Sleep(time.Hour)
		require.Empty(t, heard.take(), "renewals are no news")

		// A follower that begins late gets what stands.
		require.Equal(t, "b", func() string { late := w.followHolder("job"); time.Sleep(3 * time.Second); return late.take() }())
	})
}

// Nobody answers for a TTL: what was told may be past. Then it is told anew, whatever it is.
func TestFollowHolderTellsWhenItDoesNotKnow(t *testing.T) {
	each(t, map[string]func(s *memory.Store) store.Store{
		"a watch":         func(s *memory.Store) store.Store { return s },
		"nothing is told": func(s *memory.Store) store.Store { return blind(s) },
	}, func(t *testing.T, s *memory.Store, less func(s *memory.Store) store.Store) {
		store := less(s)
		a, w := start(t, store, "a"), start(t, store, "w")
		la := a.hold("job")
		heard := w.followHolder("job")
		time.Sleep(3 * time.Second)
		require.Equal(t, "a", heard.take())
		w.store.Partition()
		time.Sleep(ttl - time.Second)
		require.Empty(t, heard.take(), "a short interruption is made up for")
		w.store.Heal()
		time.Sleep(ttl)
		require.Empty(t, heard.take())
		w.store.Partition()
		time.Sleep(5 * ttl)
		require.Equal(t, "unknown", heard.take(), "once")
		w.store.Heal()
		time.Sleep(ttl)
		require.Equal(t, "a", heard.take(), "the same as before")
		w.store.Partition()
		time.Sleep(5 * ttl)
		require.NoError(t, la.Release(t.Context()))
		w.store.Heal()
		time.Sleep(ttl)
		require.Equal(t, "unknown free", heard.take())

		// From the beginning.
		x := start(t, store, "x")
		x.store.Partition()
		late := x.followHolder("job")
		time.Sleep(ttl / 2)
		require.Empty(t, late.take(), "it is not known yet whether it is unknown")
		time.Sleep(5 * ttl)
		require.Equal(t, "unknown", late.take())
	})
}

// The store's history goes back: nothing is known until what stands is accepted.
func TestFollowHolderThroughASetback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSetbackBed(t)
		k := keeper(t, b.sw, lease.Config{ID: "w", TTL: 3 * time.Second})
		var heard holdings
		_, err := k.FollowHolder("job", heard.add)
		require.NoError(t, err)
		_, h := b.keeper(lease.Config{ID: "a"})
		defer func() { _ = h.Release(t.Context()) }()
		used(t, h, 9)
		acquired(t, h)
		require.Contains(t, heard.take(), "a")
		b.wipe(0, b.stranger(2, 9))
		time.Sleep(time.Minute)
		told := heard.take()
		require.True(t, strings.HasSuffix(told, "unknown"), told)
		require.NotContains(t, told, "x", "its token is older than what was told")
		require.NoError(t, k.AcceptHistory(t.Context()))
		time.Sleep(3 * time.Second)
		require.Equal(t, "x", heard.take())
	})
}

func TestWhatIsNoRecordHoldsTheName(t *testing.T) {
	spoiltStores(t, func(t *testing.T, s spoilt, store store.Store) {
		w := start(t, store, "w")
		heard := w.followHolder("job")
		mend := s.spoil(t, "job")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		heard.mu.Lock()
		last := heard.told[len(heard.told)-1]
		heard.mu.Unlock()
		require.Equal(t, lease.Holding{State: lease.NameHeld, Record: lease.Record{Name: "job"}}, last)
		heard.take()
		mend()
		time.Sleep(3 * time.Second)
		require.Equal(t, "free", heard.take())
	})
}

// tardy is a store whose watch tells of each deletion once more, after what came then.
type tardy struct{ *memory.Store }

func (s tardy) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		var gone store.Event
		for ev, err := range s.Store.Watch(ctx, of) {
			if !yield(ev, err) || ev.Kind == store.EventPut && gone.Kind != 0 && !yield(gone, nil) {
				return
			}
			if ev.Kind == store.EventDelete {
				gone = ev
			}
		}
	}
}

func TestALateDeletionIsNoNews(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a, w := start(t, s, "a"), start(t, tardy{s}, "w")
		la, heard := a.lease("job"), w.followHolder("job")
		synctest.Wait()
		for range 3 {
			mustWin(t, la)
			synctest.Wait()
			require.NoError(t, la.Release(t.Context()))
			synctest.Wait()
		}
		require.Equal(t, "free a free a free a free", heard.take())
	})
}

// One that is slow misses what was past, and never what stands; one that panics, or ends its
// goroutine, is told what comes next.
func TestRudeFollowersOfAHolder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, w := start(t, store, "a"), start(t, store, "w")
		la := a.lease("job")
		var slow, rude holdings
		_, err := w.FollowHolder("job", func(h lease.Holding) { slow.add(h); time.Sleep(time.Minute) })
		require.NoError(t, err)
		_, err = w.FollowHolder("job", func(h lease.Holding) {
			rude.add(h)
			panic("a bug")
		})
		require.NoError(t, err)
		synctest.Wait()
		for range 5 {
			mustWin(t, la)
			synctest.Wait()
			require.NoError(t, la.Release(t.Context()))
			synctest.Wait()
		}
		mustWin(t, la)
		require.Equal(t, "free", slow.take())
		require.Equal(t, "free a free a free a free a free a free a", rude.take())
		time.Sleep(time.Hour)
		require.Equal(t, "a", slow.take())
		hangs := make(chan struct{})
		_, err = w.FollowHolder("job", func(lease.Holding) { <-hangs })
		require.NoError(t, err)
		synctest.Wait()
		began := time.Now()
		require.NoError(t, w.Close(t.Context()))
		require.Less(t, time.Since(began), time.Second, "a follower that hangs does not hold the Keeper up")
		close(hangs)
	})
}

func TestAFollowerOfAHolderStops(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, w := start(t, store, "a"), start(t, store, "w")
		la := a.lease("job")
		var heard holdings
		var stop func()
		stop, err := w.FollowHolder("job", func(h lease.Holding) {
			heard.add(h)
			if h.State == lease.NameHeld {
				stop()
			}
		})
		require.NoError(t, err)
		synctest.Wait()
		mustWin(t, la)
		require.Equal(t, "free a", heard.take())
		require.NoError(t, la.Release(t.Context()))
		require.Empty(t, heard.take())
		stop()

		closed := w.followHolder("job")
		require.Equal(t, "free", closed.take())
		require.NoError(t, w.Close(t.Context()))
		mustWin(t, la)
		time.Sleep(time.Minute)
		require.Empty(t, closed.take())
		_, err = w.FollowHolder("job", heard.add)
		require.ErrorIs(t, err, lease.ErrClosed)
	})
}

func TestFollowHolderRefuses(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
		for _, name := range []string{"", "a//b", "\xff", strings.Repeat("x", store.MaxName+1)} {
			_, err := a.FollowHolder(name, func(lease.Holding) {})
			require.ErrorIs(t, err, lease.ErrInvalid)
		}
		_, err := a.FollowHolder("job", nil)
		require.ErrorIs(t, err, lease.ErrInvalid)
	})
}

// stranger is a record of one who knows nothing of before.
func (b *setbackBed) stranger(token lease.Token, nonce uint64) lease.Record {
	return lease.Record{Name: "job", Session: 7, Token: token, Nonce: nonce, TTL: time.Hour, Owner: lease.Owner{ID: "x", Incarnation: "x"}}
}

// follow has a Keeper follow the name that has no lease of it.
func (b *setbackBed) follow() (*lease.Keeper, *told) {
	k := keeper(b.t, b.sw, lease.Config{ID: "w", TTL: 3 * time.Second})
	var s told
	stop, err := k.Watch("job", s.add)
	require.NoError(b.t, err)
	b.t.Cleanup(stop)
	synctest.Wait()
	return k, &s
}

// What a follower knew of a name outlives the record: the history that stands is seen to
// be another when the name comes again, in a watch that was begun in between.
func TestAFollowerRemembersWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSetbackBed(t)
		watcher, heard := b.follow()
		_, h := b.keeper(lease.Config{ID: "a"})
		used(t, h, 9)
		synctest.Wait()
		b.wipe(0)
		time.Sleep(3 * time.Second)
		require.NoError(t, watcher.Setback(), "nothing stands")
		heard.take()
		require.NoError(t, faultstore.Restore(t.Context(), b.inner, []lease.Record{b.stranger(2, 9)}, 0))
		synctest.Wait()
		require.ErrorIs(t, watcher.Setback(), lease.ErrSetback)
		require.Empty(t, heard.take())
		time.Sleep(time.Minute)
		require.ErrorIs(t, watcher.Setback(), lease.ErrSetback, "time alone decides nothing")
		require.NoError(t, watcher.AcceptHistory(t.Context()))
		time.Sleep(2 * time.Second)
		require.NoError(t, watcher.Setback())
		require.Contains(t, heard.take(), "+job")
	})
}

// Two ownerships under one token are of two histories.
func TestAnotherOwnershipUnderTheSameTokenIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSetbackBed(t)
		watcher, _ := b.follow()
		_, h := b.keeper(lease.Config{ID: "a"})
		token := acquired(t, h)
		synctest.Wait()
		b.wipe(0, b.stranger(token, 9))
		time.Sleep(3 * time.Second)
		_ = h.Release(t.Context())
		require.ErrorIs(t, watcher.Setback(), lease.ErrSetback)
	})
}

// A setback that a follower found is for the operator to decide, too.
func TestWhatAFollowerFoundIsNotTheStoresToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSetbackBed(t)
		watcher, _ := b.follow()
		_, h := b.keeper(lease.Config{ID: "a"})
		used(t, h, 9)
		acquired(t, h)
		synctest.Wait()
		b.wipe(0, b.stranger(2, 9))
		time.Sleep(4 * time.Second)
		_ = h.Release(t.Context())
		for range 200 {
			require.ErrorIs(t, watcher.Setback(), lease.ErrSetback)
			time.Sleep(100 * time.Millisecond)
		}
	})
}

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

// A request may land much later than anybody looks for it in particular. While
// the session it was made under lives, it is found within a TTL.
func TestALateClaimIsFoundHoweverLateItLands(t *testing.T) {
	each(t, map[string]func(*memory.Store) store.Store{
		"everything is listed":  func(s *memory.Store) store.Store { return sessionless(s) },
		"sessions are listed":   func(s *memory.Store) store.Store { return s },
		"nothing is told":       func(s *memory.Store) store.Store { return blind(s) },
		"nor can it be listed":  func(s *memory.Store) store.Store { return listless{s} },
		"deletions, no listing": func(s *memory.Store) store.Store { return watchesAlone{listless{s}, s} },
	}, func(t *testing.T, db *memory.Store, less func(*memory.Store) store.Store) {
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

// muted is a store of which watches of a prefix fall silent.
type muted struct {
	*memory.Store
	prefix string
	on     atomic.Bool
	begun  atomic.Int32
}

func (m *muted) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	m.begun.Add(1)
	return func(yield func(store.Event, error) bool) {
		for ev, err := range m.Store.Watch(ctx, of) {
			if err == nil && m.on.Load() && strings.HasPrefix(of.Prefix, m.prefix) && ev.Kind != store.EventPut && ev.Kind != store.EventSynced {
				continue
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// Watches that say that they run go on, however many there are; one that has fallen
// silent is begun anew in time, and it alone.
func TestOnlyAWatchThatFellSilentIsBegunAnew(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		s := &muted{Store: db, prefix: "mute/"}
		a, b := start(t, s, "a"), start(t, db, "b")
		const watches = 20
		for i := range watches {
			_, err := a.Watch(fmt.Sprint("w/", i), func(store.Event) {})
			require.NoError(t, err)
		}
		var told told
		_, err := a.Watch("mute/", told.add)
		require.NoError(t, err)
		a.hold("job")
		require.Equal(t, []string{"synced"}, told.take())
		x := b.hold("mute/x")
		require.Equal(t, []string{"+mute/x"}, told.take())
		before := db.Stats()
		begun := s.begun.Load()
		time.Sleep(100 * ttl)
		require.Equal(t, begun, s.begun.Load())
		require.Equal(t, before.Watch, db.Stats().Watch, "no watch is begun anew")

		s.on.Store(true)
		require.NoError(t, x.Release(t.Context()))
		require.Empty(t, told.take())
		time.Sleep(3*ttl + time.Second)
		require.Equal(t, []string{"-mute/x"}, told.take())
		s.on.Store(false)
		time.Sleep(10 * ttl)
		synctest.Wait()
		require.LessOrEqual(t, s.begun.Load(), begun+2, "the others run on")
	})
}
