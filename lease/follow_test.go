package lease_test

import (
	"fmt"
	"sync"
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
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, b := start(t, db, "a"), start(t, db, "b")
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
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, db, "a")
		b := start(t, blind(db), "b")
		x := a.hold("team/x")
		var s told
		stop, err := b.Watch("team/", s.add)
		require.NoError(t, err)
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
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, b := start(t, db, "a"), start(t, db, "b")
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
