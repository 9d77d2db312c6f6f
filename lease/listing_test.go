package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// With a watch that runs, and nothing in doubt, every third TTL lists. The clock of this
// test is below zero.
func TestEveryThirdRoundLists(t *testing.T) {
	for name, c := range map[string]struct {
		less   func(*memory.Store) store.Store
		listed func(memory.Stats) uint64
	}{
		"by session": {func(s *memory.Store) store.Store { return s }, func(s memory.Stats) uint64 { return s.ListSession }},
		"everything": {func(s *memory.Store) store.Store { return sessionless(s) }, func(s memory.Stats) uint64 { return s.List }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a := start(t, c.less(store), "a")
				a.hold("job")
				time.Sleep(10 * ttl)
				before := c.listed(store.Stats())
				time.Sleep(30 * ttl)
				require.InDelta(t, 10, c.listed(store.Stats())-before, 1)
			})
		})
	}
}

// Where the store lists by session nothing else is listed, whatever happens.
func TestNoKeeperListsWhatIsNotItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		patient := func(c *lease.Config) { c.PollMin, c.PollMax = time.Hour, time.Hour }
		a, b := start(t, store, "a", patient), start(t, store, "b", patient)
		b.hold("theirs")
		waiting := a.lease("theirs")
		mustNotWin(t, waiting)
		a.hold("mine")
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.LandLate, Delay: 12 * ttl})
		late := a.lease("late")
		mustWin(t, late)
		require.NoError(t, late.Close(t.Context()))
		waiting.OnFree(func() {})
		synctest.Wait()
		before := store.Stats()
		a.store.CutWatches()
		time.Sleep(20 * ttl)
		requireFree(t, store, "late")
		require.Zero(t, store.Stats().List)
		require.Greater(t, store.Stats().ListSession, before.ListSession)
		require.Less(t, store.Stats().Get-before.Get, uint64(5), "what is not missed is not asked for: once after a watch began")
	})
}

// A session that this Keeper has given up may stand in the store for a while, and something
// may land under it: it is looked at until the store says that it is gone.
func TestWhatLandsUnderAnEndedSessionIsFound(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, db, "a")
		a.hold("mine")
		rec, _ := standing(t, db, "mine")
		of := store.Session{ID: rec.Session, Owner: rec.Owner, TTL: rec.TTL}
		a.rule(faultstore.Renew, faultstore.Fault{Kind: faultstore.ApplyThenFail}) // it lives on, there
		time.Sleep(ttl)
		a.store.SetRule(nil)
		outs, err := db.Acquire(t.Context(), of, []store.Claim{{Name: "late", Nonce: 1}})
		require.NoError(t, err)
		require.True(t, outs[0].OK)
		for range 5 { // somebody keeps it alive there
			time.Sleep(ttl / 2)
			_, err = db.Renew(t.Context(), []store.Session{of})
			require.NoError(t, err)
		}
		requireFree(t, db, "late")
		_, stands := standing(t, db, "mine")
		require.True(t, stands, "work may be running under it")
		time.Sleep(4 * ttl)
		before := db.Stats().ListSession
		time.Sleep(30 * ttl)
		require.Zero(t, db.Stats().ListSession-before, "nothing is left to look at")
	})
}

// What another took, against the rules, is told as such.
func TestWhatIsNotUnderItsSessionIsAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		gone, taken := a.hold("gone"), a.hold("taken")
		lostGone, lostTaken := watchLosses(gone), watchLosses(taken)
		time.Sleep(time.Second)
		a.rule(faultstore.Watch, faultstore.Fault{Kind: faultstore.Drop})
		a.store.CutWatches()
		for _, name := range []string{"gone", "taken"} {
			rec, _ := standing(t, store, name)
			remove(t, store, rec)
		}
		start(t, store, "b").hold("taken")
		time.Sleep(ttl + time.Second)
		lostGone.one(t, lease.ErrRecordGone)
		lostTaken.one(t, lease.ErrTakenOver)
	})
}
