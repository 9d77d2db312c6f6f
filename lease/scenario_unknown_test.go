package lease_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
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

func requireFree(t *testing.T, store store.Store, name string) {
	t.Helper()
	rec, ok := standing(t, store, name)
	require.False(t, ok, "nothing should stand, but %+v does", rec)
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
		})
	}
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
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
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
