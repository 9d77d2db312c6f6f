package lease_test

import (
	"context"
	"iter"
	"slices"
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
	onOne(t, func(t *testing.T, db *memory.Store, a *node) {
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
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
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
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
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
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
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
		onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
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
		onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
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
		onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
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
		onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
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
			onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
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

func TestScenario13Transfer(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, b, c := start(t, db, "a"), start(t, db, "b"), start(t, db, "c")
		la, lb, lc := a.hold("job"), b.lease("job"), c.lease("job")
		first, _ := la.Term()
		require.Zero(t, first.(lease.Continuing).Continues(), "it was free")
		lost := watchLosses(la)
		term, _ := la.Term()

		// A third tries all the while, and must never win.
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				if won, _ := lc.Acquire(ctx); won {
					t.Error("a third won during a transfer")
				}
				time.Sleep(time.Millisecond)
			}
		})
		for range 20 {
			o := offerOf(t, lb)
			time.Sleep(3 * time.Millisecond)
			before := token(t, la)
			require.NoError(t, la.Transfer(t.Context(), o))
			require.False(t, la.CheckAlive())
			time.Sleep(3 * time.Millisecond)
			mustAdopt(t, lb, o)
			require.Greater(t, token(t, lb), before)
			now, _ := lb.Term()
			continues := now.(lease.Continuing).Continues()
			require.True(t, before < continues && continues < now.Token(), "%d after %d and before %d", continues, before, now.Token())
			require.True(t, now.(lease.Continuing).Adopted(o))
			la, lb = lb, la
		}
		stop()
		wg.Wait()
		require.ErrorIs(t, context.Cause(term.Context()), lease.ErrTransferred)
		require.Empty(t, lost.all(), "a transfer is no loss")
	})
}

// What was transferred may be gone when it is to be taken up, and others may have
// had the name since: then the term that Adopt wins is a new one.
func TestScenario13AdoptedTooLate(t *testing.T) {
	for _, again := range []bool{false, true} { // an answer is lost, so that a record of its own stands
		bubble(t, func(t *testing.T, db *memory.Store) {
			a, b, c := start(t, db, "a"), start(t, db, "b"), start(t, db, "c")
			la, lb, lc := a.hold("job"), b.lease("job"), c.lease("job")
			o := offerOf(t, lb)
			require.NoError(t, la.Transfer(t.Context(), o))
			b.store.Partition()
			time.Sleep(ttl + time.Second)
			mustWin(t, lc)
			require.NoError(t, lc.Release(t.Context()))
			b.store.Heal()
			if again {
				b.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.ApplyThenFail})
			}
			mustAdopt(t, lb, o)
			term, _ := lb.Term()
			require.False(t, term.(lease.Continuing).Adopted(o))
		})
	}
}

// Who was told that the name came to its offer takes it up by one request.
func TestScenario13AdoptedAtOnce(t *testing.T) {
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
		la, lb := a.hold("job"), b.lease("job")
		stop, err := b.Watch("", func(store.Event) {})
		require.NoError(t, err)
		defer stop()
		o := offerOf(t, lb)
		require.NoError(t, la.Transfer(t.Context(), o))
		synctest.Wait()
		asked := b.noting(nil)
		mustAdopt(t, lb, o)
		require.Len(t, asked.of(faultstore.Acquire), 1)
		term, _ := lb.Term()
		require.True(t, term.(lease.Continuing).Adopted(o))
	})
}

// An answer that is lost while a name is taken up does not hide that nobody else
// had it, as long as the store says what each claim replaced.
func TestScenario13AdoptedByTheSecondAnswer(t *testing.T) {
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
		la, lb := a.hold("job"), b.lease("job")
		o := offerOf(t, lb)
		require.NoError(t, la.Transfer(t.Context(), o))
		b.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.Drop})
		mustAdopt(t, lb, o)
		require.Equal(t, 1, b.store.Injected(faultstore.Acquire))
		term, _ := lb.Term()
		require.True(t, term.(lease.Continuing).Adopted(o))
	})
}

func TestScenario13TransferRefused(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, b, c := start(t, db, "a"), start(t, db, "b"), start(t, db, "c")
		la, lb, lc := a.hold("job"), b.lease("job"), c.lease("job")

		// To a target whose session is gone: not moved, and the owner decides.
		o := offerOf(t, lb)
		b.crash()
		time.Sleep(ttl + time.Second)
		first := token(t, la)
		require.ErrorIs(t, la.Transfer(t.Context(), o), lease.ErrTransferRefused)
		require.False(t, la.CheckAlive(), "trust ended before the transfer was sent")
		mustNotWin(t, lc)
		mustWin(t, la)
		require.Greater(t, token(t, la), first, "only a newer token makes the handle alive again")

		// When already lost: refused.
		a.store.Partition()
		time.Sleep(ttl + time.Second)
		mustWin(t, lc)
		a.store.Heal()
		o = offerOf(t, a.lease("other"))
		o.Name = "job"
		require.ErrorIs(t, la.Transfer(t.Context(), o), lease.ErrNotHeld)
		require.True(t, lc.CheckAlive())
	})
}

func TestScenario13OfferIsForOneNameAndItsMaker(t *testing.T) {
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
		o := offerOf(t, b.lease("other"))
		la := a.hold("job")
		require.ErrorIs(t, la.Transfer(t.Context(), o), lease.ErrInvalid)
		require.True(t, la.CheckAlive())
		_, err := la.Adopt(t.Context(), o)
		require.ErrorIs(t, err, lease.ErrInvalid)
	})
}

// once lets f befall the first n calls of op.
func (n *node) once(op faultstore.Op, times int, f faultstore.Fault) {
	n.store.SetRule(func(c faultstore.Call) faultstore.Fault {
		if c.Op == op && times > 0 {
			times--
			return f
		}
		return faultstore.Fault{}
	})
}

func requireFree(t *testing.T, store store.Store, name string) {
	t.Helper()
	rec, ok := standing(t, store, name)
	require.False(t, ok, "nothing should stand, but %+v does", rec)
}

func TestScenario09GivenUpIsNotRenewedForNobody(t *testing.T) {
	each(t, map[string]faultstore.Fault{
		"applied, answer lost": {Kind: faultstore.ApplyThenFail, Hang: true},
		"lands late":           {Kind: faultstore.LandLate, Delay: 4 * time.Second, Hang: true},
	}, func(t *testing.T, store *memory.Store, fault faultstore.Fault) {
		a, b := start(t, store, "a"), start(t, store, "b")
		a.hold("another") // keeps the session alive
		a.once(faultstore.Acquire, 99, fault)
		ctx := within(t, time.Second)
		won, err := a.lease("job").Acquire(ctx)
		require.False(t, won)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		a.store.SetRule(nil)
		time.Sleep(4*time.Second + ttl)
		requireFree(t, store, "job")
		mustWin(t, b.lease("job"))
	})
}

// foreignStore has a value that is no record under one name.
type foreignStore struct {
	*memory.Store
	name string
}

func (f *foreignStore) Acquire(ctx context.Context, s store.Session, claims []store.Claim) ([]store.Outcome, error) {
	outs, err := f.Store.Acquire(ctx, s, claims)
	for i := range outs {
		if claims[i].Name == f.name {
			outs[i] = store.Outcome{Err: lease.ErrBadRecord}
		}
	}
	return outs, err
}

func (f *foreignStore) List(ctx context.Context, q store.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		if yield(lease.Record{Name: f.name}, lease.ErrBadRecord) {
			f.Store.List(ctx, q)(yield)
		}
	}
}

func (f *foreignStore) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		if of.Deletions || yield(store.Event{Kind: store.EventBad, Record: lease.Record{Name: f.name}}, nil) {
			f.Store.Watch(ctx, of)(yield)
		}
	}
}

func TestScenario21LateReleaseAfterReacquire(t *testing.T) {
	onTwo(t, func(t *testing.T, store *memory.Store, a, b *node) {
		la, lb := a.hold("job"), b.lease("job")
		first := token(t, la)
		a.rule(faultstore.Release, faultstore.Fault{Kind: faultstore.LandLate, Delay: 8 * time.Second})
		ctx := within(t, 2*time.Second)
		require.ErrorIs(t, la.Release(ctx), lease.ErrUnknown)
		require.False(t, la.CheckAlive())
		a.store.SetRule(nil)
		// A read-back would say: still ours. It must not be believed.
		rec, ok := standing(t, store, "job")
		require.True(t, ok)
		require.Equal(t, first, rec.Token)
		require.False(t, la.CheckAlive())

		mustWin(t, la)
		require.Greater(t, token(t, la), first, "settled by a newer token")
		for range 20 {
			time.Sleep(time.Second)
			require.True(t, la.CheckAlive(), "the late release finds its condition broken")
			mustNotWin(t, lb)
		}
	})
}

func TestScenario22UnclaimedRecordIsReleased(t *testing.T) {
	for _, how := range []string{"looked for", "found by listing"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a, b, c := start(t, store, "a"), start(t, store, "b"), start(t, store, "c")
				if how == "found by listing" {
					b.rule(faultstore.Watch, faultstore.Fault{Kind: faultstore.Drop})
				}
				b.hold("another") // b's session lives on
				la, lb := a.hold("job"), b.lease("job")
				o := offerOf(t, lb)
				time.Sleep(o.Lifetime / 2)
				require.NoError(t, la.Transfer(t.Context(), o))
				// The notice is lost: b never adopts. Until the offer ends it might.
				time.Sleep(o.Lifetime/2 - time.Millisecond)
				rec, ok := standing(t, store, "job")
				require.True(t, ok)
				require.Equal(t, b.Owner(), rec.Owner)
				time.Sleep(ttl + time.Second)
				requireFree(t, store, "job")
				mustWin(t, c.lease("job"))
			})
		})
	}
}

func TestScenario22ALostTermStaysClaimed(t *testing.T) {
	onTwo(t, func(t *testing.T, store *memory.Store, a, b *node) {
		la := a.hold("job")
		lost := watchLosses(la)
		// Our clock says it is over while the store still has the record.
		a.clock.StepWall(ttl)
		require.False(t, la.CheckAlive())
		lost.one(t, lease.ErrExpired)
		time.Sleep(ttl / 4)
		requireHeld(t, store, "job") // work may still run under it: it is left to its TTL
		require.NoError(t, la.Release(t.Context()))
		requireFree(t, store, "job")
		mustWin(t, b.lease("job"))
	})
}

// endless lets no listing come to its end within an attempt.
func endless(c faultstore.Call) faultstore.Fault {
	if c.Op == faultstore.List || c.Op == faultstore.ListSession {
		return faultstore.Fault{Kind: faultstore.Delay, Delay: 3 * time.Second}
	}
	return faultstore.Fault{}
}

// What this Keeper asked for is looked at though the listing of everything never
// comes to its end.
func TestScenarioALateClaimIsFoundWithoutTheListing(t *testing.T) {
	watched(t, func(t *testing.T, store store.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		a.store.SetRule(endless)
		a.hold("other") // keeps the session
		a.store.SetRule(func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.Acquire && slices.Contains(c.Names, "job") {
				return faultstore.Fault{Kind: faultstore.LandLate, Delay: 20 * time.Second, Hang: true}
			}
			return endless(c)
		})
		_, err := a.lease("job").Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrUnknown)
		a.store.SetRule(endless)
		time.Sleep(20*time.Second + 2*ttl)
		rec, stands := standing(t, store, "job")
		require.False(t, stands, "%v stands for nobody", rec)
		mustWin(t, b.lease("job"))
	})
}

// So is what it holds: a record that went while no watch ran is missed, and who
// waits for a name that became free then hears of it.
func TestScenarioWhatWentUnseenIsMissedWithoutTheListing(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a", func(c *lease.Config) { c.PollMin, c.PollMax = time.Hour, time.Hour }), start(t, store, "b")
		mine, theirs := a.hold("mine"), b.hold("theirs")
		lost := watchLosses(mine)
		waiting := a.lease("theirs")
		mustNotWin(t, waiting)
		time.Sleep(time.Second)
		free := make(chan time.Time, 1)
		waiting.OnFree(func() { free <- time.Now() })
		a.store.SetRule(func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.Watch {
				return faultstore.Fault{Kind: faultstore.Drop}
			}
			return endless(c)
		})
		a.store.CutWatches()
		require.NoError(t, theirs.Release(t.Context()))
		rec, _ := standing(t, store, "mine")
		remove(t, store, rec)
		a.store.SetRule(endless)
		back := time.Now()
		time.Sleep(ttl)
		require.False(t, mine.CheckAlive())
		lost.one(t, lease.ErrRecordGone)
		require.Less(t, (<-free).Sub(back), ttl)
	})
}
