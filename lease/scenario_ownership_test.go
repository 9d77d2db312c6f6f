package lease_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

func TestScenario01FreeHeldReleasedExpired(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la := a.lease("job", lease.WithMetadata(map[string]string{"role": "cron"}))
		lb := b.lease("job")
		require.False(t, la.CheckAlive(), "nothing is held before Acquire")
		mustWin(t, la)

		mustNotWin(t, lb)
		rec, ok, err := lb.Holder(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, a.Owner(), rec.Owner)
		require.Equal(t, token(t, la), rec.Token)
		require.Equal(t, map[string]string{"role": "cron"}, rec.Metadata)

		require.NoError(t, la.Release(t.Context()))
		require.False(t, la.CheckAlive())
		mustWin(t, lb)

		b.crash()
		time.Sleep(ttl + time.Second)
		mustWin(t, la)
	})
}

func TestScenario02ConcurrentAcquiresHaveOneWinner(t *testing.T) {
	for _, n := range []int{2, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				var wins atomic.Int32
				var wg sync.WaitGroup
				for i := range n {
					l := start(t, store, fmt.Sprint("n", i)).lease("job")
					wg.Go(func() {
						if acquire(t, l) {
							wins.Add(1)
						}
					})
				}
				wg.Wait()
				require.EqualValues(t, 1, wins.Load())
			})
		})
	}
}

func TestScenario02ChurnNeverTwoAtOnce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	bubble(t, func(t *testing.T, store *memory.Store) {
		var holders, held atomic.Int32
		var highest atomic.Uint64
		var wg sync.WaitGroup
		for i := range 30 {
			l := start(t, store, fmt.Sprint("n", i)).lease("job")
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			wg.Go(func() {
				for range 40 {
					if !acquire(t, l) {
						time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
						continue
					}
					if n := holders.Add(1); n != 1 {
						t.Errorf("%d holders at once", n)
					}
					held.Add(1)
					tok := uint64(token(t, l))
					if old := highest.Swap(tok); old >= tok {
						t.Errorf("token %d after %d", tok, old)
					}
					time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
					holders.Add(-1)
					if err := l.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		require.Positive(t, held.Load())
	})
}

func TestScenario03ReacquireIsIdempotent(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		l := a.hold("job")
		first := token(t, l)
		before := store.Stats()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { require.True(t, acquire(t, l)) })
		}
		wg.Wait()
		require.Equal(t, first, token(t, l), "the same token")
		require.Equal(t, before.Acquire, store.Stats().Acquire, "nothing to ask the store for")

		time.Sleep(3 * ttl)
		renewals := store.Stats().Renew - before.Renew
		require.InDelta(t, 9, renewals, 2, "one renewal every TTL/3, however often it was acquired")
	})
}

func TestScenario12TokensIncrease(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.lease("job"), b.lease("job")
		var last lease.Token
		grown := func(h *lease.Handle) {
			t.Helper()
			require.Greater(t, token(t, h), last)
			last = token(t, h)
		}
		for range 3 {
			mustWin(t, la) // over release (which deletes) and re-creation
			grown(la)
			require.NoError(t, la.Release(t.Context()))
			mustWin(t, lb)
			grown(lb)
			o, err := la.Offer(t.Context())
			require.NoError(t, err)
			require.NoError(t, lb.Transfer(t.Context(), o))
			won, err := la.Adopt(t.Context(), o)
			require.NoError(t, err)
			require.True(t, won)
			grown(la) // over transfer
			a.store.Partition()
			time.Sleep(ttl + time.Second)
			mustWin(t, lb)
			grown(lb) // over expiry
			a.store.Heal()
			require.NoError(t, la.Release(t.Context()))
			require.True(t, lb.CheckAlive(), "a stale release harms nobody")
			require.NoError(t, lb.Release(t.Context()))
		}
	})
}

func TestScenario13Transfer(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b, c := start(t, store, "a"), start(t, store, "b"), start(t, store, "c")
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
			o, err := lb.Offer(t.Context())
			require.NoError(t, err)
			time.Sleep(3 * time.Millisecond)
			before := token(t, la)
			require.NoError(t, la.Transfer(t.Context(), o))
			require.False(t, la.CheckAlive())
			time.Sleep(3 * time.Millisecond)
			won, err := lb.Adopt(t.Context(), o)
			require.NoError(t, err)
			require.True(t, won)
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
		bubble(t, func(t *testing.T, store *memory.Store) {
			a, b, c := start(t, store, "a"), start(t, store, "b"), start(t, store, "c")
			la, lb, lc := a.hold("job"), b.lease("job"), c.lease("job")
			o, err := lb.Offer(t.Context())
			require.NoError(t, err)
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
			won, err := lb.Adopt(t.Context(), o)
			require.NoError(t, err)
			require.True(t, won)
			term, _ := lb.Term()
			require.False(t, term.(lease.Continuing).Adopted(o))
		})
	}
}

// Who was told that the name came to its offer takes it up by one request.
func TestScenario13AdoptedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.hold("job"), b.lease("job")
		stop, err := b.Watch("", func(lease.Event) {})
		require.NoError(t, err)
		defer stop()
		o, err := lb.Offer(t.Context())
		require.NoError(t, err)
		require.NoError(t, la.Transfer(t.Context(), o))
		synctest.Wait()
		asked := 0
		b.store.SetRule(func(call faultstore.Call) faultstore.Fault {
			if call.Op == faultstore.Acquire {
				asked++
			}
			return faultstore.Fault{}
		})
		won, err := lb.Adopt(t.Context(), o)
		require.NoError(t, err)
		require.True(t, won)
		require.Equal(t, 1, asked)
		term, _ := lb.Term()
		require.True(t, term.(lease.Continuing).Adopted(o))
	})
}

// An answer that is lost while a name is taken up does not hide that nobody else
// had it, as long as the store says what each claim replaced.
func TestScenario13AdoptedByTheSecondAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.hold("job"), b.lease("job")
		o, err := lb.Offer(t.Context())
		require.NoError(t, err)
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
		won, err := lb.Adopt(t.Context(), o)
		require.NoError(t, err)
		require.True(t, won)
		require.Greater(t, lost, 1)
		term, _ := lb.Term()
		require.True(t, term.(lease.Continuing).Adopted(o))
	})
}

func TestScenario13TransferRefused(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b, c := start(t, store, "a"), start(t, store, "b"), start(t, store, "c")
		la, lb, lc := a.hold("job"), b.lease("job"), c.lease("job")

		// To a target whose session is gone: not moved, and the owner decides.
		o, err := lb.Offer(t.Context())
		require.NoError(t, err)
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
		o, err = a.lease("other").Offer(t.Context())
		require.NoError(t, err)
		o.Name = "job"
		require.ErrorIs(t, la.Transfer(t.Context(), o), lease.ErrNotHeld)
		require.True(t, lc.CheckAlive())
	})
}

func TestScenario13OfferIsForOneNameAndItsMaker(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		o, err := b.lease("other").Offer(t.Context())
		require.NoError(t, err)
		la := a.hold("job")
		require.ErrorIs(t, la.Transfer(t.Context(), o), lease.ErrInvalid)
		require.True(t, la.CheckAlive())
		_, err = la.Adopt(t.Context(), o)
		require.ErrorIs(t, err, lease.ErrInvalid)
	})
}

func TestScenario16NewIncarnationIsAnotherHolder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		first, second := start(t, store, "a"), start(t, store, "a")
		require.NotEqual(t, first.Owner().Incarnation, second.Owner().Incarnation)
		l1, l2 := first.hold("job"), second.lease("job")
		mustNotWin(t, l2)
		require.NoError(t, l2.Release(t.Context()))
		require.True(t, l1.CheckAlive())
		first.crash()
		time.Sleep(ttl + time.Second)
		mustWin(t, l2)
	})
}

func TestScenario18WaitersDoNotStampede(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		const names = 500
		var mu sync.Mutex
		fired := map[time.Time]int{}
		for i := range names {
			name := fmt.Sprint("job/", i)
			a.hold(name)
			h := b.lease(name)
			mustNotWin(t, h)
			h.OnFree(func() {
				mu.Lock()
				defer mu.Unlock()
				fired[time.Now()]++
			})
		}
		time.Sleep(2 * time.Second)
		a.crash()
		time.Sleep(ttl + 3*time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		total, most := 0, 0
		for _, n := range fired {
			total += n
			most = max(most, n)
		}
		require.Equal(t, names, total, "everyone is told, once")
		require.Less(t, most, names/10, "but not at one moment")
	})
}

func TestScenario23TheSameNameTwiceIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		first := a.hold("job")
		_, err := a.Lease("job")
		require.ErrorIs(t, err, lease.ErrNameInUse)
		require.ErrorContains(t, err, `"job"`)
		require.NoError(t, first.Close(t.Context()))
		second := a.hold("job")
		_, err = first.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed, "a closed handle stays closed")
		require.True(t, second.CheckAlive())
	})
}
