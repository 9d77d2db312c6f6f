package lease_test

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

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

func requireFree(t *testing.T, store lease.Store, name string) {
	t.Helper()
	rec, ok := standing(t, store, name)
	require.False(t, ok, "nothing should stand, but %+v does", rec)
}

func TestScenario09AppliedButTimedOutIsSettled(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.ApplyThenFail, Hang: true})
		la := a.lease("job")
		mustWin(t, la)
		rec, _ := standing(t, store, "job")
		require.Equal(t, rec.Token, token(t, la), "owned anew, by a newer token than the lost answer's")
		require.NoError(t, la.Release(t.Context()))
		requireFree(t, store, "job")
	})
}

func TestScenario09GivenUpIsNotRenewedForNobody(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"applied, answer lost": {Kind: faultstore.ApplyThenFail, Hang: true},
		"lands late":           {Kind: faultstore.LandLate, Delay: 4 * time.Second, Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a, b := start(t, store, "a"), start(t, store, "b")
				a.hold("another") // keeps the session alive
				a.once(faultstore.Acquire, 99, fault)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				won, err := a.lease("job").Acquire(ctx)
				require.False(t, won)
				require.ErrorIs(t, err, lease.ErrUnknown)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				a.store.SetRule(nil)
				time.Sleep(4*time.Second + ttl)
				requireFree(t, store, "job")
				mustWin(t, b.lease("job"))
			})
		})
	}
}

func TestScenario10ReleaseDuringAcquireGivesTheWinBack(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		la := a.lease("job")
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.ReplyLate, Delay: time.Second})
		type result struct {
			won bool
			err error
		}
		got := make(chan result, 1)
		go func() {
			won, err := la.Acquire(context.Background())
			got <- result{won, err}
		}()
		synctest.Wait()
		_, ok := standing(t, store, "job")
		require.True(t, ok, "the store has applied it already")
		require.NoError(t, la.Release(t.Context()))
		r := <-got
		require.False(t, r.won)
		require.ErrorIs(t, r.err, lease.ErrReleased)
		requireFree(t, store, "job")
		require.False(t, la.CheckAlive())

		// The same when the caller goes away.
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.ReplyLate, Delay: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := la.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(600 * time.Millisecond)
		requireFree(t, store, "job")
		mustWin(t, la)
	})
}

func TestScenario11StaleReleaseChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.hold("job"), b.lease("job")
		a.store.Partition()
		time.Sleep(ttl + time.Second)
		mustWin(t, lb)
		a.store.Heal()
		require.NoError(t, la.Release(t.Context()))
		time.Sleep(2 * ttl)
		require.True(t, lb.CheckAlive())
	})
}

func TestScenario17StoreAwayIsAnErrorNeverFalse(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la := a.hold("job")
		lost := watchLosses(la)
		a.store.Partition()
		lb := b.hold("other")
		other := a.lease("other")
		for range 5 {
			began := time.Now()
			won, err := other.Acquire(context.Background())
			require.False(t, won)
			require.ErrorIs(t, err, lease.ErrUnknown, "not known is not false")
			require.LessOrEqual(t, time.Since(began), ttl, "OperationTimeout, even without a bound of the caller's")
		}
		require.False(t, la.CheckAlive())
		lost.one(t, lease.ErrExpired)
		_, _, err := func() (lease.Record, bool, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return other.Holder(ctx)
		}()
		require.Error(t, err)
		a.store.Heal()
		require.NoError(t, lb.Release(t.Context()))
		mustWin(t, other)
		mustWin(t, la)
	})
}

func TestScenario20BadRecordsAreReportedAndLeftAlone(t *testing.T) {
	for _, f := range []func(*foreignStore) lease.Store{
		func(f *foreignStore) lease.Store { return f },
		func(f *foreignStore) lease.Store { return wordy{f, f, f, f} },
	} {
		bubble(t, func(t *testing.T, store *memory.Store) {
			a := start(t, f(&foreignStore{Store: store, name: "bad"}), "a")
			bad, good := a.lease("bad"), a.lease("good")
			won, err := bad.Acquire(t.Context())
			require.False(t, won)
			require.ErrorIs(t, err, lease.ErrBadRecord)
			require.ErrorContains(t, err, `"bad"`)
			mustWin(t, good)
			time.Sleep(20 * ttl) // reconciling and watching past it
			require.True(t, good.CheckAlive())
			require.ErrorIs(t, lease.Run(t.Context(), bad, func(context.Context, lease.Term) error { return nil }), lease.ErrBadRecord)
		})
	}
}

// foreignStore has a value that is no record under one name.
type foreignStore struct {
	*memory.Store
	name string
}

func (f *foreignStore) Acquire(ctx context.Context, s lease.Session, claims []lease.Claim) ([]lease.Outcome, error) {
	outs, err := f.Store.Acquire(ctx, s, claims)
	for i := range outs {
		if claims[i].Name == f.name {
			outs[i] = lease.Outcome{Err: lease.ErrBadRecord}
		}
	}
	return outs, err
}

func (f *foreignStore) List(ctx context.Context, prefix string) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		if yield(lease.Record{Name: f.name}, lease.ErrBadRecord) {
			f.Store.List(ctx, prefix)(yield)
		}
	}
}

func (f *foreignStore) Watch(ctx context.Context, prefix string) iter.Seq2[lease.Event, error] {
	return func(yield func(lease.Event, error) bool) {
		if yield(lease.Event{Kind: lease.EventBad, Record: lease.Record{Name: f.name}}, nil) {
			f.Store.Watch(ctx, prefix)(yield)
		}
	}
}

func TestScenario21LateAcquireAfterSettling(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.lease("job"), b.lease("job")
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.LandLate, Delay: 5 * time.Second})
		mustWin(t, la)
		first := token(t, la)
		time.Sleep(6 * time.Second) // it lands, and finds its condition broken
		require.True(t, la.CheckAlive())
		rec, _ := standing(t, store, "job")
		require.Equal(t, first, rec.Token)

		// Landing after everyone let go: nobody's, so it is released.
		require.NoError(t, la.Release(t.Context()))
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.LandLate, Delay: 5 * time.Second})
		mustWin(t, la)
		require.NoError(t, la.Release(t.Context()))
		time.Sleep(5*time.Second + ttl)
		requireFree(t, store, "job")
		mustWin(t, lb)
	})
}

func TestScenario21LateReleaseAfterReacquire(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.hold("job"), b.lease("job")
		first := token(t, la)
		a.rule(faultstore.Release, faultstore.Fault{Kind: faultstore.LandLate, Delay: 8 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
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

func TestScenario21LateTransferAfterSettling(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.hold("job"), b.lease("job")
		o, err := lb.Offer(t.Context())
		require.NoError(t, err)
		a.rule(faultstore.Transfer, faultstore.Fault{Kind: faultstore.LandLate, Delay: 5 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		require.ErrorIs(t, la.Transfer(ctx, o), lease.ErrUnknown)
		require.False(t, la.CheckAlive())
		mustWin(t, la) // settled: ours, under a newer token
		for range 15 {
			time.Sleep(time.Second)
			require.True(t, la.CheckAlive())
			require.False(t, lb.CheckAlive())
		}
		won, err := lb.Adopt(t.Context(), o)
		require.NoError(t, err)
		require.False(t, won)
	})
}

func TestScenario21AppliedTransferWithLostAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.hold("job"), b.lease("job")
		o, err := lb.Offer(t.Context())
		require.NoError(t, err)
		a.once(faultstore.Transfer, 1, faultstore.Fault{Kind: faultstore.ApplyThenFail})
		require.NoError(t, la.Transfer(t.Context(), o), "the retry finds it moved")
		won, err := lb.Adopt(t.Context(), o)
		require.NoError(t, err)
		require.True(t, won)
		mustNotWin(t, la)
	})
}

func TestScenario22UnclaimedRecordIsReleased(t *testing.T) {
	for _, how := range []string{"told by the watch", "looked for", "found by listing"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store) {
				var store lease.Store = s // tells of deletions alone
				if how == "told by the watch" {
					store = wordy{s, s, s, s}
				}
				a, b, c := start(t, store, "a"), start(t, store, "b"), start(t, store, "c")
				if how == "found by listing" {
					b.rule(faultstore.Watch, faultstore.Fault{Kind: faultstore.Drop})
				}
				b.hold("another") // b's session lives on
				la, lb := a.hold("job"), b.lease("job")
				o, err := lb.Offer(t.Context())
				require.NoError(t, err)
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
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la := a.hold("job")
		lost := watchLosses(la)
		// Our clock says it is over while the store still has the record.
		a.clock.StepWall(ttl)
		require.False(t, la.CheckAlive())
		lost.one(t, lease.ErrExpired)
		time.Sleep(ttl / 4)
		_, ok := standing(t, store, "job")
		require.True(t, ok, "work may still run under it: it is left to its TTL")
		require.NoError(t, la.Release(t.Context()))
		requireFree(t, store, "job")
		mustWin(t, b.lease("job"))
	})
}

func TestScenario24StoreAwayForMinutes(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		names := []string{"x", "y", "z"}
		holding := make(chan string, 100)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, len(names))
		for _, name := range names {
			l := a.lease(name)
			go func() {
				for ctx.Err() == nil {
					lease.Run(ctx, l, func(ctx context.Context, _ lease.Term) error {
						holding <- name
						<-ctx.Done()
						return nil
					})
				}
				done <- nil
			}()
		}
		collect := func() {
			t.Helper()
			got := map[string]bool{}
			for len(got) < len(names) {
				got[<-holding] = true
			}
		}
		collect()
		a.store.Partition()
		time.Sleep(5 * time.Minute)
		a.store.Heal()
		healed := time.Now()
		collect()
		require.LessOrEqual(t, time.Since(healed), ttl+2*time.Second)
		cancel()
		for range names {
			require.NoError(t, <-done)
		}
		for _, name := range names {
			requireFree(t, store, name)
		}
	})
}
