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

// trusted is how long a holder trusts a session whose renewals fail: the TTL
// less the margin, a tenth of it.
const trusted = ttl - ttl/10

func TestScenario04DefiniteLossFiresOnce(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, db, "a")
		la := a.hold("job")
		lost := watchLosses(la)
		tok := token(t, la)
		rec, _ := standing(t, db, "job")
		a.rule(faultstore.Watch, faultstore.Fault{Kind: faultstore.Drop})
		a.store.CutWatches()
		// The session is revoked behind our back: a renewal is told so.
		require.NoError(t, db.CloseSession(t.Context(), store.Session{ID: rec.Session, Owner: rec.Owner, TTL: rec.TTL}))
		time.Sleep(ttl / 2)
		require.False(t, la.CheckAlive())
		loss := lost.one(t, lease.ErrRecordGone)
		require.Equal(t, lease.Loss{Name: "job", Token: tok, Reason: loss.Reason}, loss)
		time.Sleep(3 * ttl)
		require.Len(t, lost.all(), 1)
	})
}

func TestScenario05CrashAnotherAcquiresAfterTTL(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		a.hold("job")
		lb := b.lease("job")
		mustNotWin(t, lb)
		time.Sleep(time.Millisecond)
		a.crash()
		began := time.Now()
		for {
			require.NoError(t, lb.Wait(t.Context()))
			if acquire(t, lb) {
				break
			}
		}
		took := time.Since(began)
		require.GreaterOrEqual(t, took, ttl-ttl/3-ttl/10, "not before the TTL after the last renewal ended")
		require.LessOrEqual(t, took, ttl+time.Second, "soon after")
	})
}

func TestScenario06FrozenHolderFirstCheckIsFalse(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.hold("job"), b.lease("job")
		lost := watchLosses(la)
		term, _ := la.Term()
		for _, pause := range []time.Duration{trusted, ttl, 3 * ttl} {
			a.clock.Freeze()
			a.store.Partition()
			time.Sleep(pause)
			// The very first look on resuming, before any timer has run.
			require.False(t, la.CheckAlive(), "frozen for %v", pause)
			require.False(t, term.CheckAlive())
			a.store.Heal()
			a.clock.Thaw()
			synctest.Wait()
			require.Error(t, term.Context().Err())
			require.ErrorIs(t, context.Cause(term.Context()), lease.ErrExpired)
			if pause > ttl {
				mustWin(t, lb)
				mustNotWin(t, la)
				require.NoError(t, lb.Release(t.Context()))
			}
			mustWin(t, la)
			term, _ = la.Term()
		}
		require.Len(t, lost.all(), 3, "each loss is told once")
	})
}

func TestScenario08DeadlineCountsFromTheSendTime(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		patient := func(c *lease.Config) { c.AttemptTimeout = ttl }
		a, b := start(t, store, "a", patient), start(t, store, "b")
		const late = 2 * time.Second
		a.rule(faultstore.OpenSession, faultstore.Fault{Kind: faultstore.ReplyLate, Delay: late})
		began := time.Now()
		la := a.hold("job")
		require.GreaterOrEqual(t, time.Since(began), late)
		a.store.Partition()
		time.Sleep(time.Until(began.Add(trusted - time.Millisecond)))
		require.True(t, la.CheckAlive())
		time.Sleep(time.Millisecond)
		require.False(t, la.CheckAlive(), "the deadline is TTL - margin after the request was sent, not after its reply")
		time.Sleep(time.Until(began.Add(ttl)))
		mustWin(t, b.lease("job"))

		// The same for a renewal.
		lb := b.lease("other")
		b.rule(faultstore.Renew, faultstore.Fault{Kind: faultstore.ReplyLate, Delay: 2 * time.Second})
		mustWin(t, lb)
		time.Sleep(ttl)
		require.True(t, lb.CheckAlive())
		sends := store.Stats().Renew
		for store.Stats().Renew == sends {
			time.Sleep(time.Millisecond)
		}
		sent := time.Now() // ReplyLate applies it at once
		time.Sleep(2*time.Second + time.Millisecond)
		b.store.Partition()
		time.Sleep(time.Until(sent.Add(trusted - 5*time.Millisecond)))
		require.True(t, lb.CheckAlive())
		time.Sleep(10 * time.Millisecond)
		require.False(t, lb.CheckAlive())
	})
}

func TestScenario14OnLostOrderAndIsolation(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		la := a.lease("job")
		var mu sync.Mutex
		var told []string
		tell := func(s string) { mu.Lock(); told = append(told, s); mu.Unlock() }
		var term lease.Term
		la.OnLost(func(lease.Loss) { panic("a handler's panic harms nobody") })
		release := make(chan struct{})
		la.OnLost(func(lease.Loss) { <-release })
		la.OnLost(func(l lease.Loss) {
			if la.CheckAlive() {
				tell("CheckAlive was still true")
			}
			if term.Context().Err() == nil {
				tell("the context was not done")
			}
			tell("told")
		})
		stop := la.OnLost(func(lease.Loss) { tell("unregistered") })
		require.True(t, stop())
		require.False(t, stop())

		// Nothing is told before an acquire completed, nor of a release.
		a.store.Partition()
		ctx := within(t, time.Second)
		_, err := la.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		a.store.Heal()
		time.Sleep(2 * ttl)
		mustWin(t, la)
		require.NoError(t, la.Release(t.Context()))
		synctest.Wait()
		require.Empty(t, told)

		mustWin(t, la)
		term, _ = la.Term()
		a.store.Partition()
		time.Sleep(2 * ttl)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []string{"told"}, told)
		close(release)
	})
}

func TestScenario15SuspendAndClockSteps(t *testing.T) {
	t.Run("the machine sleeps", func(t *testing.T) {
		bubble(t, func(t *testing.T, store *memory.Store) {
			a, b := start(t, store, "a"), start(t, store, "b")
			la, lb := a.hold("job"), b.lease("job")
			lost := watchLosses(la)
			term, _ := la.Term()
			a.clock.Sleep()
			a.store.Partition()
			time.Sleep(ttl)
			mustWin(t, lb)
			a.store.Heal()
			a.clock.Wake()
			require.False(t, la.CheckAlive(), "its monotonic clock stood still, its wall clock did not")
			time.Sleep(time.Second + time.Millisecond)
			require.Error(t, term.Context().Err(), "noticed within a second")
			lost.one(t, lease.ErrExpired)
		})
	})
	t.Run("the wall clock is stepped ahead", func(t *testing.T) {
		bubble(t, func(t *testing.T, store *memory.Store) {
			a, b := start(t, store, "a"), start(t, store, "b")
			la, lb := a.hold("job"), b.lease("job")
			a.clock.StepWall(time.Hour)
			require.False(t, la.CheckAlive(), "as safe as after a sleep")
			mustNotWin(t, lb)
			mustWin(t, la)
			time.Sleep(3 * ttl)
			require.True(t, la.CheckAlive())
		})
	})
	t.Run("the wall clock is stepped back", func(t *testing.T) {
		bubble(t, func(t *testing.T, store *memory.Store) {
			a, b := start(t, store, "a"), start(t, store, "b")
			la, lb := a.hold("job"), b.lease("job")
			a.clock.StepWall(-time.Hour)
			time.Sleep(3 * ttl)
			require.True(t, la.CheckAlive())
			a.store.Partition()
			time.Sleep(ttl)
			require.False(t, la.CheckAlive(), "the monotonic clock alone ends it")
			mustWin(t, lb)
		})
	})
	t.Run("the wall clock is stepped back, then the machine sleeps", func(t *testing.T) {
		bubble(t, func(t *testing.T, store *memory.Store) {
			a, b := start(t, store, "a"), start(t, store, "b")
			la, lb := a.hold("job"), b.lease("job")
			a.clock.StepWall(-time.Hour)
			time.Sleep(time.Second + time.Millisecond) // to notice it
			a.clock.Sleep()
			a.store.Partition()
			time.Sleep(ttl)
			mustWin(t, lb)
			a.store.Heal()
			a.clock.Wake()
			require.False(t, la.CheckAlive(), "the step does not make up for the sleep")
		})
	})
	t.Run("the clock runs at another rate", func(t *testing.T) {
		for _, rate := range []float64{0.92, 1.08} {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a, b := start(t, store, "a"), start(t, store, "b")
				a.clock.SetRate(rate)
				la, lb := a.hold("job"), b.lease("job")
				time.Sleep(5 * ttl)
				require.True(t, la.CheckAlive())
				a.store.Partition()
				for !acquire(t, lb) {
					time.Sleep(time.Millisecond)
				}
				require.False(t, la.CheckAlive(), "rate %v: the margin covers the drift", rate)
			})
		}
	})
}

func TestScenario23EventOfAnEarlierOwnershipIsIgnored(t *testing.T) {
	watched(t, func(t *testing.T, store store.Store) {
		a := start(t, store, "a")
		la := a.lease("job")
		lost := watchLosses(la)
		// Events reach the Keeper half a second late: the deletion of each
		// ownership arrives during the next.
		a.rule(faultstore.Watch, faultstore.Fault{Kind: faultstore.Delay, Delay: 500 * time.Millisecond})
		for range 20 {
			mustWin(t, la)
			time.Sleep(100 * time.Millisecond)
			require.True(t, la.CheckAlive())
			require.NoError(t, la.Release(t.Context()))
		}
		mustWin(t, la)
		time.Sleep(2 * ttl)
		require.True(t, la.CheckAlive())
		require.Empty(t, lost.all())
	})
}

func TestWatchEndsATermAtOnce(t *testing.T) {
	watched(t, func(t *testing.T, store store.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.hold("job"), b.lease("job")
		lost := watchLosses(la)
		term, _ := la.Term()
		la.OnLost(func(lease.Loss) { // here no clock helps: only the order does
			if la.CheckAlive() || term.CheckAlive() || term.Context().Err() == nil {
				t.Error("a handler ran before CheckAlive was false and the context done")
			}
		})
		synctest.Wait()
		rec, _ := standing(t, store, "job")
		remove(t, store, rec)
		synctest.Wait()
		require.False(t, la.CheckAlive())
		lost.one(t, lease.ErrRecordGone)
		mustWin(t, lb)
	})
}
