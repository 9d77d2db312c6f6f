package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestCloseWaitsForOwnersToRelease(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, db, "a")
		la, idle := a.hold("job"), a.lease("idle")
		lost := watchLosses(la)
		term, _ := la.Term()
		waits := make(chan error, 1)
		taken := a.lease("taken")
		start(t, db, "b").hold("taken")
		go func() { waits <- taken.Wait(context.Background()) }()
		synctest.Wait()
		closed := make(chan error, 2)
		go func() { closed <- a.Close(context.Background()) }()
		go func() { closed <- a.Close(context.Background()) }()
		synctest.Wait()
		require.False(t, la.CheckAlive(), "trust ends at once")
		require.ErrorIs(t, context.Cause(term.Context()), lease.ErrClosed)
		lost.one(t, lease.ErrClosed)
		require.Len(t, waits, 1, "nobody waits for what cannot come")
		require.ErrorIs(t, <-waits, lease.ErrClosed)

		// Work may still be running under it: the record is renewed.
		time.Sleep(5 * ttl)
		require.Empty(t, closed)
		_, ok := standing(t, db, "job")
		require.True(t, ok)
		// Nothing new begins.
		_, err := la.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed)
		_, err = idle.Offer(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed)
		_, err = a.Lease("new")
		require.ErrorIs(t, err, lease.ErrClosed)
		_, err = a.Watch("", func(store.Event) {})
		require.ErrorIs(t, err, lease.ErrClosed)
		require.ErrorIs(t, idle.Wait(t.Context()), lease.ErrClosed)

		require.NoError(t, la.Release(t.Context()))
		require.NoError(t, <-closed)
		require.NoError(t, <-closed, "a second Close waits like the first")
		requireFree(t, db, "job")
		require.NotZero(t, db.Stats().CloseSession, "sessions are closed, not left to expire")
		require.NoError(t, a.Close(context.Background()), "and one that comes later has nothing to do")
		require.Len(t, lost.all(), 1)

		// After the end.
		require.NoError(t, la.Release(t.Context()), "nothing stands")
		require.NoError(t, la.Close(t.Context()))
		_, err = la.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed)
		require.ErrorContains(t, err, `"job"`)
		_, _, err = la.Holder(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed)
	})
}

func TestCloseAbandonsWhatIsNotReleased(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, b := start(t, db, "a"), start(t, db, "b")
		stuck, gone := a.hold("stuck"), a.hold("gone", lease.WithOwnSession())
		patient := meanwhile(func() error { return a.Close(context.Background()) })
		synctest.Wait()
		require.NoError(t, gone.Release(t.Context()))
		err := a.Close(within(t, time.Second))
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "1 leases not released")
		require.ErrorContains(t, err, "stuck")
		require.NotContains(t, err.Error(), "gone")
		require.Equal(t, err, <-patient, "it abandons for the other call, too")
		require.Equal(t, err, a.Close(context.Background()), "and a later call is told the same")
		require.ErrorIs(t, stuck.Release(t.Context()), lease.ErrClosed)

		lb := b.lease("stuck")
		mustNotWin(t, lb)
		time.Sleep(ttl)
		mustWin(t, lb) // left to expire, and not renewed
	})
}

func TestCloseOfALostTermWaitsForItsOwner(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, db, "a")
		la := a.hold("job")
		a.store.Partition()
		time.Sleep(ttl)
		require.False(t, la.CheckAlive())
		a.store.Heal()
		err := a.Close(within(t, time.Second))
		require.ErrorContains(t, err, "job", "nobody said that the work is over")
	})
}

func TestCloseDuringOperations(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"the answer is late":     {Kind: faultstore.ReplyLate, Delay: 2 * time.Second},
		"the answer is lost":     {Kind: faultstore.ApplyThenFail, Hang: true},
		"the request is lost":    {Kind: faultstore.Drop},
		"the request lands late": {Kind: faultstore.LandLate, Delay: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, db *memory.Store) {
				a := start(t, db, "a")
				a.hold("warm") // so that a session is open
				require.NoError(t, a.lease("other").Close(t.Context()))
				a.rule(faultstore.Acquire, fault)
				got := make(chan error, 2)
				for _, name := range []string{"job/1", "job/2"} {
					l := a.lease(name)
					go func() { _, err := l.Acquire(context.Background()); got <- err }()
				}
				synctest.Wait()
				err := a.Close(within(t, 4*time.Second))
				require.ErrorContains(t, err, "warm")
				require.NotContains(t, err.Error(), "job")
				for range 2 {
					require.ErrorIs(t, <-got, lease.ErrClosed)
				}
				a.store.Wait()
				time.Sleep(ttl)
				requireFree(t, db, "job/1")
			})
		})
	}
}

func TestCloseWithTheStoreAwayIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, db, "a", func(c *lease.Config) { c.NamesPerSession = 1 })
		for _, name := range []string{"u", "v", "w", "x", "y"} {
			h := a.hold(name)
			require.NoError(t, h.Release(t.Context()))
		}
		a.store.Partition()
		began := time.Now()
		require.NoError(t, a.Close(context.Background()))
		require.LessOrEqual(t, time.Since(began), ttl/4, "one attempt, not one for each session")
	})
}

func TestHandleCloseReleases(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, db, "a")
		la := a.hold("job")
		lost := watchLosses(la)
		waits := make(chan error, 1)
		blocked := a.lease("blocked")
		mustWin(t, start(t, db, "b").lease("blocked"))
		go func() { waits <- blocked.Wait(context.Background()) }()
		synctest.Wait()
		require.NoError(t, la.Close(t.Context()))
		require.False(t, la.CheckAlive())
		requireFree(t, db, "job")
		require.Empty(t, lost.all(), "a release is no loss")
		require.NoError(t, la.Close(t.Context()), "twice is once")
		require.NoError(t, la.Release(t.Context()))

		require.NoError(t, blocked.Close(t.Context()))
		require.ErrorIs(t, <-waits, lease.ErrClosed, "nobody is left waiting")
	})
}

// However a handle is closed, nothing is held by it afterwards.
func TestHandleCloseWithNoTimeLeft(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, db, "a")
		a.hold("another") // keeps the session alive
		la := a.hold("job")
		done, cancel := context.WithCancel(t.Context())
		cancel()
		a.once(faultstore.Release, 1, faultstore.Fault{Kind: faultstore.Drop})
		err := la.Close(done)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, la.CheckAlive())
		time.Sleep(ttl + time.Second)
		requireFree(t, db, "job")
		a.hold("job") // and its name is free on the Keeper
	})
}

func TestHandleCloseDuringAcquire(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, db, "a")
		la := a.lease("job")
		a.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.ReplyLate, Delay: time.Second})
		got := meanwhile(func() error { _, err := la.Acquire(context.Background()); return err })
		synctest.Wait()
		closed := meanwhile(func() error { return la.Close(context.Background()) })
		synctest.Wait()
		require.ErrorIs(t, <-got, lease.ErrClosed)
		_, err := la.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed, "nothing is won behind the release")
		require.NoError(t, <-closed)
		requireFree(t, db, "job")
		require.False(t, la.CheckAlive())
	})
}
