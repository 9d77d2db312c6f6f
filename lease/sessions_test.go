package lease_test

import (
	"context"
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

// holdMany acquires names at once, as a process that starts does.
func holdMany(t testing.TB, k *lease.Keeper, names []string) []*lease.Handle {
	handles := make([]*lease.Handle, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		h, err := k.Lease(name)
		if err != nil {
			t.Fatal(err)
		}
		handles[i] = h
		wg.Go(func() {
			if won, err := h.Acquire(context.Background()); !won || err != nil {
				t.Error(name, won, err)
			}
		})
	}
	wg.Wait()
	return handles
}

// A hundred thousand leases cost as many renewals as their sessions, a hundred.
func TestRenewalsArePerSession(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		names, per := 100_000, 1000
		if underRace {
			names = 20_000
		}
		a := start(t, store, "a")
		a.store.SetRule(func(c faultstore.Call) faultstore.Fault { // a round trip takes its time
			return faultstore.Fault{Kind: faultstore.ReplyLate, Delay: time.Millisecond}
		})
		handles := holdMany(t, a.Keeper, manyNames(names))
		opened := store.Stats().OpenSession
		require.GreaterOrEqual(t, opened, uint64(names/per))
		require.LessOrEqual(t, opened, uint64(names/per+4), "packed")
		require.Less(t, store.Stats().Acquire, uint64(names/100), "and acquired in batches")
		before := store.Stats()
		const ttls = 3
		time.Sleep(ttls * ttl)
		renewed := store.Stats().RenewedSessions - before.RenewedSessions
		require.InDelta(t, 3*ttls*opened, renewed, float64(opened*ttls), "each session every TTL/3")
		for _, h := range handles {
			require.True(t, h.CheckAlive())
		}
		var wg sync.WaitGroup
		for _, h := range handles {
			wg.Go(func() { require.NoError(t, h.Release(context.Background())) })
		}
		wg.Wait()
		require.Less(t, store.Stats().Release, uint64(names/100))
		require.NoError(t, a.Close(t.Context()))
		require.Equal(t, opened, store.Stats().CloseSession)
	})
}

func TestNamesPerSession(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, db, "a", func(c *lease.Config) { c.NamesPerSession = 3 })
		sessions := map[store.SessionID]int{}
		for _, name := range manyNames(10) {
			a.hold(name)
			rec, _ := standing(t, db, name)
			sessions[rec.Session]++
		}
		require.Len(t, sessions, 4)
		for _, n := range sessions {
			require.LessOrEqual(t, n, 3)
		}
	})
}

func TestSessionsAreSharedByTTL(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, db, "a")
		session := func(name string) store.SessionID {
			rec, ok := standing(t, db, name)
			require.True(t, ok)
			return rec.Session
		}
		a.hold("a")
		a.hold("b")
		a.hold("short", lease.WithTTL(ttl/2))
		a.hold("short too", lease.WithTTL(ttl/2))
		a.hold("own", lease.WithOwnSession())
		a.hold("own too", lease.WithOwnSession())
		require.Equal(t, session("a"), session("b"))
		require.Equal(t, session("short"), session("short too"))
		all := map[store.SessionID]bool{}
		for _, name := range []string{"a", "short", "own", "own too"} {
			all[session(name)] = true
		}
		require.Len(t, all, 4)
		time.Sleep(5 * ttl)
		require.Len(t, all, 4)
	})
}

func TestAnEmptySessionIsClosedAfterATTL(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		la := a.hold("job")
		require.NoError(t, la.Release(t.Context()))
		time.Sleep(ttl - time.Millisecond)
		require.Zero(t, store.Stats().CloseSession, "a name may come back soon")
		mustWin(t, la)
		require.EqualValues(t, 1, store.Stats().OpenSession, "to the same session")
		time.Sleep(3 * ttl)
		require.NoError(t, la.Release(t.Context()))
		time.Sleep(ttl + time.Millisecond)
		require.EqualValues(t, 1, store.Stats().CloseSession)
		renewals := store.Stats().Renew
		time.Sleep(10 * ttl)
		require.Equal(t, renewals, store.Stats().Renew, "nothing is renewed for nobody")
	})
}

func TestAnOfferKeepsItsSessionForItsLifetime(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		la := a.lease("job")
		o := offerOf(t, la)
		_, err := la.Offer(t.Context()) // replaces it
		require.NoError(t, err)
		time.Sleep(o.Lifetime)
		require.Zero(t, store.Stats().CloseSession)
		time.Sleep(ttl + time.Second)
		require.EqualValues(t, 1, store.Stats().CloseSession)
	})
}

func TestRenewalsAreJittered(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a", func(c *lease.Config) { c.NamesPerSession = 1 })
		for _, name := range manyNames(50) {
			a.hold(name)
		}
		synctest.Wait()
		times := map[uint64]int{}
		for range 4 * 100 {
			before := store.Stats().RenewedSessions
			time.Sleep(ttl / 3 / 100)
			times[store.Stats().RenewedSessions-before]++
		}
		for n := range times {
			require.Less(t, n, uint64(25), "not all in one moment")
		}
	})
}

// A hung batch of renewals takes no other along.
func TestRenewalBatchesGoSideBySide(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		slow := &slowSession{Store: store}
		a := start(t, batched{slow}, "a", func(c *lease.Config) { c.NamesPerSession = 1 })
		names := manyNames(40)
		var handles []*lease.Handle
		for _, name := range names {
			handles = append(handles, a.hold(name))
		}
		slow.hang(t, names[0])
		time.Sleep(5 * ttl)
		alive := 0
		for _, h := range handles {
			if h.CheckAlive() {
				alive++
			}
		}
		require.Equal(t, len(names)-1, alive)
	})
}

// batched is a store that takes one session or name at a time.
type batched struct{ *slowSession }

func (batched) Limits() store.Limits { return store.Limits{Name: "batched", Batch: 1} }
