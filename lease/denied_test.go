package lease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// denies has the calls of those kinds denied, all if there are none, and counts them.
func (n *node) denies(ops ...faultstore.Op) *atomic.Int64 {
	var count atomic.Int64
	n.store.SetRule(func(c faultstore.Call) faultstore.Fault {
		for _, op := range ops {
			if c.Op == op {
				count.Add(1)
				return faultstore.Fault{Kind: faultstore.Deny}
			}
		}
		if len(ops) == 0 {
			count.Add(1)
			return faultstore.Fault{Kind: faultstore.Deny}
		}
		return faultstore.Fault{}
	})
	return &count
}

// Who is denied is told at once, and no attempt follows the one.
func TestADeniedAcquisitionEndsAtOnce(t *testing.T) {
	for _, op := range []faultstore.Op{faultstore.OpenSession, faultstore.Acquire} {
		for name, less := range map[string]func(*memory.Store) store.Store{
			"prompt":    func(s *memory.Store) store.Store { return s },
			"unhurried": func(s *memory.Store) store.Store { return unhurried(s) },
		} {
			t.Run(op.String()+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T, db *memory.Store) {
					a := start(t, less(db), "a")
					count := a.denies(op)
					la := a.lease("job")
					began := time.Now()
					won, err := la.Acquire(t.Context())
					require.False(t, won)
					require.ErrorIs(t, err, lease.ErrDenied)
					require.NotErrorIs(t, err, lease.ErrUnknown)
					require.ErrorContains(t, err, `"job"`)
					require.Zero(t, time.Since(began))
					require.EqualValues(t, 1, count.Load())
					_, err = la.AcquireTerm(t.Context())
					require.ErrorIs(t, err, lease.ErrDenied)
					a.store.SetRule(nil)
					mustWin(t, la)
				})
			})
		}
	}
}

// An earlier attempt that got no answer may still land, whatever the next is told.
func TestADenialSettlesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, b := start(t, db, "a"), start(t, db, "b")
		a.hold("other")
		n := 0
		a.store.SetRule(func(c faultstore.Call) faultstore.Fault {
			if c.Op != faultstore.Acquire {
				return faultstore.Fault{}
			}
			if n++; n == 1 {
				return faultstore.Fault{Kind: faultstore.LandLate, Delay: 5 * time.Second}
			}
			return faultstore.Fault{Kind: faultstore.Deny}
		})
		_, err := a.lease("job").Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrDenied)
		require.ErrorIs(t, err, lease.ErrUnknown)
		time.Sleep(5*time.Second + ttl + time.Second)
		mustWin(t, b.lease("job"))
	})
}

// A release that is denied ends trust, and is made up for when it is allowed.
func TestADeniedReleaseIsMadeUpFor(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, b := start(t, db, "a"), start(t, db, "b")
		a.hold("other")
		la, lb := a.hold("job"), b.lease("job")
		count := a.denies(faultstore.Release)
		began := time.Now()
		err := la.Release(t.Context())
		require.ErrorIs(t, err, lease.ErrDenied)
		require.NotErrorIs(t, err, lease.ErrUnknown)
		require.Zero(t, time.Since(began))
		require.False(t, la.CheckAlive())
		time.Sleep(10 * ttl)
		mustNotWin(t, lb)
		require.InDelta(t, 10, count.Load(), 3, "about once per TTL")
		a.store.SetRule(nil)
		time.Sleep(ttl + time.Second)
		mustWin(t, lb)
	})
}

func TestADeniedTransferIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, b := start(t, db, "a"), start(t, db, "b")
		la, lb := a.hold("job"), b.lease("job")
		o := offerOf(t, lb)
		count := a.denies(faultstore.Transfer)
		err := la.Transfer(t.Context(), o)
		require.ErrorIs(t, err, lease.ErrDenied)
		require.ErrorIs(t, err, lease.ErrTransferRefused)
		require.NotErrorIs(t, err, lease.ErrUnknown)
		require.EqualValues(t, 1, count.Load())
		require.False(t, la.CheckAlive())
		mustWin(t, la)
	})
}

// A renewal that is denied is repeated, at a slow pace; the term lives until its deadline,
// and goes on if it is allowed before.
func TestADeniedRenewalIsNoLossYet(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, db, "a", func(c *lease.Config) { c.Jitter = -1 })
		la := a.hold("job")
		lost := watchLosses(la)
		began := time.Now()
		count := a.denies(faultstore.Renew)
		time.Sleep(8 * time.Second)
		require.True(t, la.CheckAlive())
		require.LessOrEqual(t, count.Load(), int64(10), "a second apart at the most, half of it at least")
		require.Positive(t, count.Load())
		a.store.SetRule(nil)
		time.Sleep(5 * ttl)
		require.True(t, la.CheckAlive())
		require.Empty(t, lost.all())

		a.denies(faultstore.Renew)
		for la.CheckAlive() {
			time.Sleep(100 * time.Millisecond)
		}
		lost.one(t, lease.ErrExpired)
		require.Greater(t, time.Since(began), ttl)
	})
}

// However long a denial lasts, and for however many callers, the log has one line, and one when it
// is over.
func TestADenialIsOneLineAndOneWhenItIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		logged, logs := observed(zapcore.WarnLevel)
		a := start(t, db, "a", logged)
		a.hold("held", lease.WithOwnSession())
		count := a.denies()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		for _, name := range []string{"x", "y"} {
			h := a.lease(name)
			go func() {
				done <- lease.Run(ctx, h, func(ctx context.Context, _ lease.Term) error { <-ctx.Done(); return nil })
			}()
		}
		_, err := a.Watch("", func(store.Event) {})
		require.NoError(t, err)
		time.Sleep(10 * ttl)
		synctest.Wait()
		all := logs.TakeAll()
		require.Len(t, all, 1, "%v", all)
		require.Equal(t, "the store denies this node what leases need", all[0].Message)
		require.Less(t, count.Load(), int64(10*20), "nothing is asked for in haste")
		info := a.Info()
		require.ErrorIs(t, info.Failure, lease.ErrDenied)
		require.False(t, info.Since.IsZero())
		require.ErrorIs(t, a.Health(t.Context()), lease.ErrDenied)

		a.store.SetRule(nil)
		time.Sleep(2 * ttl)
		synctest.Wait()
		all = logs.TakeAll()
		require.Len(t, all, 1, "%v", all)
		require.Equal(t, "the store denies no more", all[0].Message)
		require.NoError(t, a.Info().Failure)
		require.Equal(t, 2, a.Info().Held)
		cancel()
		for range 2 {
			require.NoError(t, <-done)
		}
	})
}

// One name that is denied beside others that are not is told once, too.
func TestADenialOfOneNameAmongOthers(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		logged, logs := observed(zapcore.WarnLevel)
		a := start(t, db, "a", logged)
		a.store.SetRule(func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.Acquire && c.Names[0] == "bad" {
				return faultstore.Fault{Kind: faultstore.Deny}
			}
			return faultstore.Fault{}
		})
		good, bad := a.lease("good"), a.lease("bad")
		for range 20 {
			mustWin(t, good)
			require.NoError(t, good.Release(t.Context()))
			_, err := bad.Acquire(t.Context())
			require.ErrorIs(t, err, lease.ErrDenied)
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, len(logs.TakeAll()), 2)
	})
}

// So may an earlier attempt of a transfer land, also if the store denies one name alone.
func TestADenialOfOneNameSettlesNoTransfer(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, b := start(t, &denyingMoves{Store: db}, "a"), start(t, db, "b")
		la, lb := a.hold("job"), b.lease("job")
		o := offerOf(t, lb)
		a.once(faultstore.Transfer, 1, faultstore.Fault{Kind: faultstore.LandLate, Delay: 5 * time.Second})
		err := la.Transfer(t.Context(), o)
		require.ErrorIs(t, err, lease.ErrDenied)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.NotErrorIs(t, err, lease.ErrTransferRefused)
		require.False(t, la.CheckAlive())
		time.Sleep(5 * time.Second)
		rec, _ := standing(t, db, "job")
		require.Equal(t, "b", rec.Owner.ID)
	})
}

// denyingMoves denies each move of the first call by itself.
type denyingMoves struct {
	*memory.Store
	denied bool
}

func (s *denyingMoves) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	if s.denied {
		return s.Store.Transfer(ctx, moves)
	}
	s.denied = true
	outs := make([]store.Outcome, len(moves))
	for i := range outs {
		outs[i].Err = lease.ErrDenied
	}
	return outs, nil
}
