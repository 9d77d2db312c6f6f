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
				lost := 0
				b.store.SetRule(func(call faultstore.Call) faultstore.Fault {
					if lost++; lost == 1 && call.Op == faultstore.Acquire {
						return faultstore.Fault{Kind: faultstore.ApplyThenFail}
					}
					return faultstore.Fault{}
				})
			}
			mustAdopt(t, lb, o)
			term, _ := lb.Term()
			require.False(t, term.(lease.Continuing).Adopted(o))
		})
	}
}

// Who was told that the name came to its offer takes it up by one request.
func TestScenario13AdoptedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, b := start(t, db, "a"), start(t, db, "b")
		la, lb := a.hold("job"), b.lease("job")
		stop, err := b.Watch("", func(store.Event) {})
		require.NoError(t, err)
		defer stop()
		o := offerOf(t, lb)
		require.NoError(t, la.Transfer(t.Context(), o))
		synctest.Wait()
		asked := 0
		b.store.SetRule(func(call faultstore.Call) faultstore.Fault {
			if call.Op == faultstore.Acquire {
				asked++
			}
			return faultstore.Fault{}
		})
		mustAdopt(t, lb, o)
		require.Equal(t, 1, asked)
		term, _ := lb.Term()
		require.True(t, term.(lease.Continuing).Adopted(o))
	})
}

// An answer that is lost while a name is taken up does not hide that nobody else
// had it, as long as the store says what each claim replaced.
func TestScenario13AdoptedByTheSecondAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, b := start(t, db, "a"), start(t, db, "b")
		la, lb := a.hold("job"), b.lease("job")
		o := offerOf(t, lb)
		require.NoError(t, la.Transfer(t.Context(), o))
		lost := 0
		b.store.SetRule(func(call faultstore.Call) faultstore.Fault {
			if call.Op == faultstore.Acquire {
				if lost++; lost == 1 {
					return faultstore.Fault{Kind: faultstore.Drop}
				}
			}
			return faultstore.Fault{}
		})
		mustAdopt(t, lb, o)
		require.Greater(t, lost, 1)
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
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, b := start(t, db, "a"), start(t, db, "b")
		o := offerOf(t, b.lease("other"))
		la := a.hold("job")
		require.ErrorIs(t, la.Transfer(t.Context(), o), lease.ErrInvalid)
		require.True(t, la.CheckAlive())
		_, err := la.Adopt(t.Context(), o)
		require.ErrorIs(t, err, lease.ErrInvalid)
	})
}
