package lease_test

import (
	"context"
	"errors"
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

func TestOnActivity(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a", noJitter)
		asked := a.noting(nil)
		h := a.hold("session/x", lease.WithRenewal(lease.RenewOnActivity()))
		lost := watchLosses(h)
		renewals := func() int { synctest.Wait(); return len(asked.of(faultstore.Renew)) }

		// Touched early: renewed when that is due, once.
		for range 1000 {
			h.Touch()
		}
		time.Sleep(3 * time.Second)
		require.Zero(t, renewals())
		time.Sleep(time.Second)
		require.Equal(t, 1, renewals())
		// Not touched since: not renewed.
		time.Sleep(7 * time.Second)
		require.Equal(t, 1, renewals())
		require.Equal(t, 1333*time.Millisecond, trustLeft(t, h).Truncate(time.Millisecond))
		// Touched late: at once.
		h.Touch()
		require.Equal(t, 2, renewals())
		require.Equal(t, 9*time.Second, trustLeft(t, h))
		// In constant use: as seldom as by default.
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			h.Touch()
		}
		require.Equal(t, 2+3, renewals())
		require.NoError(t, a.Health(t.Context()))
		// In no use it ends. That is no trouble.
		require.Empty(t, lost.all())
		time.Sleep(ttl + 3*time.Second)
		lost.one(t, lease.ErrLapsed)
		require.NoError(t, a.Health(t.Context()))
		h.Touch()
		require.False(t, h.CheckAlive())
		require.Equal(t, 6, renewals(), "the last touch was renewed when that was due")
	})
}

// What is called for every request of a session costs it nothing.
func TestTouchAllocatesNothing(t *testing.T) {
	a := start(t, memory.New(), "a")
	for _, h := range []*lease.Handle{a.hold("session/x", lease.WithRenewal(lease.RenewOnActivity())), a.hold("job"), a.lease("free"), {}} {
		require.Zero(t, testing.AllocsPerRun(1000, h.Touch))
	}
}

// A touch that can't be followed is a loss, not an end on time: renewals fail.
func TestActivityThatTheStoreDoesNotHear(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		h := a.hold("session/x", lease.WithRenewal(lease.RenewOnActivity()))
		lost := watchLosses(h)
		a.store.Partition()
		h.Touch()
		time.Sleep(6 * time.Second)
		require.ErrorContains(t, a.Health(t.Context()), "not renewed")
		time.Sleep(4 * time.Second)
		require.NotErrorIs(t, lost.one(t, lease.ErrExpired).Reason, lease.ErrLapsed)
	})
}

func TestRenewByHand(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		asked := a.noting(nil)
		h := a.lease("job", lease.WithRenewal(lease.RenewByHand()))
		require.ErrorIs(t, h.Renew(t.Context()), lease.ErrNotHeld)
		mustWin(t, h)
		lost := watchLosses(h)
		for range 5 {
			time.Sleep(8 * time.Second)
			require.Equal(t, time.Second, trustLeft(t, h))
			h.Touch() // has no say
			require.NoError(t, h.Renew(t.Context()))
			require.Equal(t, 9*time.Second, trustLeft(t, h))
		}
		require.Len(t, asked.of(faultstore.Renew), 5)
		require.NoError(t, a.Health(t.Context()))
		time.Sleep(9 * time.Second)
		lost.one(t, lease.ErrLapsed)
		require.ErrorIs(t, h.Renew(t.Context()), lease.ErrNotHeld)
		require.NoError(t, a.Health(t.Context()))
		require.NoError(t, h.Close(t.Context()))
		require.ErrorIs(t, h.Renew(t.Context()), lease.ErrClosed)
	})
}

// Of many who ask at once each has what it asked for, and no lease is renewed once for each.
func TestShouldRenew(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		h, err := start(t, store, "a").Keeper.Lease("job", lease.WithTTL(10*time.Second), lease.WithRenewal(lease.RenewByHand()))
		require.NoError(t, err)
		require.False(t, h.ShouldRenew(0.5), "it is not held")
		for _, renew := range []func() error{
			func() error { _, err := h.AcquireTerm(t.Context()); return err },
			func() error { return h.Renew(t.Context()) },
		} {
			require.NoError(t, renew())
			require.False(t, h.ShouldRenew(0.5))
			time.Sleep(4500*time.Millisecond - 1) // of the 9 s that it is trusted for
			require.False(t, h.ShouldRenew(0.5))
			time.Sleep(time.Nanosecond)
			require.True(t, h.ShouldRenew(0.5))
			require.False(t, h.ShouldRenew(0.8))
		}
		time.Sleep(5 * time.Second)
		require.False(t, h.ShouldRenew(0.5), "it has lapsed")
		require.False(t, new(lease.Handle).ShouldRenew(0.5))
	})
}

func TestRenewalsByHandGoTogether(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		var hs []*lease.Handle
		for _, name := range manyNames(100) {
			hs = append(hs, a.hold(name, lease.WithRenewal(lease.RenewByHand())))
		}
		asked := a.noting(func(c faultstore.Call) faultstore.Fault {
			return faultstore.Fault{Kind: faultstore.Delay, Delay: 100 * time.Millisecond}
		})
		time.Sleep(time.Second)
		var all sync.WaitGroup
		for _, h := range hs {
			for range 3 {
				all.Go(func() {
					if err := h.Renew(context.Background()); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		require.LessOrEqual(t, len(asked.of(faultstore.Renew)), 100)
		for _, h := range hs {
			require.LessOrEqual(t, 8800*time.Millisecond, trustLeft(t, h))
		}
	})
}

// With other policies Renew extends the session earlier, and its rhythm goes on from there.
func TestRenewDoesNoHarmElsewhere(t *testing.T) {
	for _, r := range []lease.Renewal{(lease.Renewal{}), lease.RenewLazy(), lease.RenewAdaptive(), lease.RenewOnActivity()} {
		t.Run(r.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a := start(t, store, "a", noJitter)
				asked := a.noting(nil)
				h := a.hold("job", lease.WithRenewal(r))
				lost := watchLosses(h)
				for range 20 {
					time.Sleep(3 * time.Second)
					h.Touch()
					require.NoError(t, h.Renew(t.Context()))
					require.Equal(t, 9*time.Second, trustLeft(t, h))
				}
				require.Len(t, asked.of(faultstore.Renew), 20)
				require.Empty(t, lost.all())
			})
		})
	}
}

// What becomes of a Renew that the store does not answer.
func TestRenewWithoutAnAnswer(t *testing.T) {
	byHand := lease.WithRenewal(lease.RenewByHand())
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a", func(c *lease.Config) { c.OperationTimeout = 3 * time.Second })
		h := a.hold("job", byHand)
		lost := watchLosses(h)
		done, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, h.Renew(done), context.Canceled)

		// One failure, or two, it outlives.
		var n int
		a.noting(func(c faultstore.Call) faultstore.Fault {
			if n++; c.Op == faultstore.Renew && n <= 2 {
				return faultstore.Fault{Kind: faultstore.Drop}
			}
			return faultstore.Fault{}
		})
		time.Sleep(time.Second)
		require.NoError(t, h.Renew(t.Context()))
		require.LessOrEqual(t, 8*time.Second, trustLeft(t, h))

		// It gives its caller up, and goes on.
		a.store.SetRule(nil)
		a.store.Partition()
		time.Sleep(time.Millisecond)
		began := time.Now()
		soon := within(t, time.Second)
		err := h.Renew(soon)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		err = h.Renew(t.Context())
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorContains(t, err, "within 3s")
		require.Equal(t, 4*time.Second, time.Since(began))
		require.True(t, h.CheckAlive(), "until its deadline")
		require.ErrorContains(t, a.Health(t.Context()), "not renewed")
		a.store.Heal()
		time.Sleep(3 * time.Second)
		require.LessOrEqual(t, 3*time.Second, trustLeft(t, h), "what was asked for is done")
		require.NoError(t, a.Health(t.Context()))

		// One that comes to the deadline is a loss.
		a.store.Partition()
		for err = error(lease.ErrUnknown); errors.Is(err, lease.ErrUnknown); {
			err = h.Renew(t.Context())
		}
		require.ErrorIs(t, err, lease.ErrExpired)
		require.NotErrorIs(t, err, lease.ErrLapsed)
		require.NotErrorIs(t, lost.one(t, lease.ErrExpired).Reason, lease.ErrLapsed)
		a.store.Heal()
		require.NoError(t, h.Release(t.Context()))

		// So is what the store says has gone, and what the store denies is said at once.
		mustWin(t, h)
		a.rule(faultstore.Renew, faultstore.Fault{Kind: faultstore.Deny})
		time.Sleep(time.Second)
		require.ErrorIs(t, h.Renew(t.Context()), lease.ErrDenied)
		require.True(t, h.CheckAlive())
		a.store.SetRule(nil)
		time.Sleep(2 * time.Second)
		require.LessOrEqual(t, 7*time.Second, trustLeft(t, h), "it is allowed again")
	})
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, db, "a")
		for _, x := range []struct {
			name string
			end  func(*lease.Handle) error
			why  error
		}{
			{"release", func(h *lease.Handle) error { return h.Release(context.Background()) }, lease.ErrReleased},
			{"close", func(h *lease.Handle) error { return h.Close(context.Background()) }, lease.ErrReleased},
			{"gone", func(h *lease.Handle) error {
				rec, _ := standing(t, db, h.Name())
				_, err := db.Release(context.Background(), []store.Held{rec.Held()})
				return err
			}, lease.ErrRecordGone},
			{"keeper", func(h *lease.Handle) error {
				time.AfterFunc(time.Second, func() { _ = h.Release(context.Background()) })
				return a.Close(context.Background())
			}, lease.ErrClosed},
		} {
			h := a.hold(x.name, byHand)
			time.Sleep(time.Second)
			a.rule(faultstore.Renew, faultstore.Fault{Kind: faultstore.Drop, Hang: true})
			done := meanwhile(func() error { return h.Renew(context.Background()) })
			synctest.Wait()
			require.NoError(t, x.end(h), x.name)
			require.ErrorIs(t, <-done, x.why, x.name)
			a.store.SetRule(nil)
			require.NoError(t, h.Release(context.Background()))
		}
	})
}
