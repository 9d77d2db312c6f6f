package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

func (n *node) pool(name string, slots int, opts ...lease.Option) *lease.Pool {
	n.t.Helper()
	p, err := lease.NewPool(n.Keeper, name, slots, opts...)
	require.NoError(n.t, err)
	return p
}

func noSlot(context.Context, int, lease.Term) error { panic("not called") }

func TestAPoolHasSoManySlots(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		const slots, nodes, calls = 3, 3, 4
		var working, most atomic.Int32
		var mu sync.Mutex
		used := map[int]int{}
		var all sync.WaitGroup
		began := time.Now()
		for i := range nodes {
			p := start(t, store, string(rune('a'+i))).pool("import", slots)
			for range calls {
				all.Go(func() {
					require.NoError(t, p.Run(t.Context(), func(ctx context.Context, slot int, term lease.Term) error {
						require.Equal(t, fmt.Sprint("import/", slot), term.Name())
						require.NoError(t, ctx.Err())
						most.Store(max(most.Load(), working.Add(1)))
						mu.Lock()
						used[slot]++
						mu.Unlock()
						time.Sleep(ttl)
						working.Add(-1)
						return nil
					}))
				})
			}
		}
		all.Wait()
		require.EqualValues(t, slots, most.Load())
		require.Len(t, used, slots)
		require.Less(t, time.Since(began), calls*ttl+time.Second, "a slot that is given up is taken at once")
		for i := range slots {
			requireFree(t, store, fmt.Sprint("import/", i))
		}
	})
}

func TestTheCallsOfAPoolHaveSlotsInTheirOrder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		p := start(t, store, "a").pool("import", 2)
		var order []int
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				require.NoError(t, p.Run(t.Context(), func(context.Context, int, lease.Term) error {
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					time.Sleep(time.Duration(1+i%2) * time.Second)
					return nil
				}))
			})
			synctest.Wait()
		}
		all.Wait()
		require.True(t, slices.IsSorted(order), "%v", order)
	})
}

func TestAPoolTakesAnySlot(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		p := start(t, store, "a").pool("import", 10)
		used := map[int]bool{}
		for range 200 {
			require.NoError(t, p.Run(t.Context(), func(_ context.Context, slot int, _ lease.Term) error { used[slot] = true; return nil }))
		}
		require.Len(t, used, 10, "nodes that begin together do not all ask for the same")
	})
}

func TestTryRunOfAPool(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		pa, pb := a.pool("import", 2), b.pool("import", 2)
		end, ended := make(chan struct{}), make(chan error, 5)
		work := func(context.Context, int, lease.Term) error { <-end; return nil }
		go func() { ended <- pa.TryRun(t.Context(), work) }()
		synctest.Wait()
		go func() { ended <- pb.TryRun(t.Context(), work) }()
		synctest.Wait()
		require.Empty(t, ended)
		holders, err := pb.Holders(t.Context())
		require.NoError(t, err)
		require.Len(t, holders, 2)
		require.Equal(t, []string{"import/0", "import/1"}, []string{holders[0].Name, holders[1].Name})
		require.ElementsMatch(t, []string{"a", "b"}, []string{holders[0].Owner.ID, holders[1].Owner.ID})
		for _, p := range []*lease.Pool{pa, pb} {
			began := time.Now()
			require.ErrorIs(t, p.TryRun(t.Context(), noSlot), lease.ErrHeld)
			require.Zero(t, time.Since(began))
		}
		go func() { ended <- pa.Run(t.Context(), work) }()
		synctest.Wait()
		require.ErrorIs(t, pa.TryRun(t.Context(), noSlot), lease.ErrHeld, "others wait")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, pa.Run(ctx, noSlot), context.DeadlineExceeded)
		close(end)
		for range 3 {
			require.NoError(t, <-ended)
		}
		holders, err = pa.Holders(t.Context())
		require.NoError(t, err)
		require.Empty(t, holders)
		require.NoError(t, pa.TryRun(t.Context(), func(context.Context, int, lease.Term) error { return nil }))
	})
}

// A slot whose holder crashed comes back with its TTL; by whatever the store tells.
func TestASlotComesBack(t *testing.T) {
	for name, less := range map[string]func(s *memory.Store) lease.Store{
		"every change is told": func(s *memory.Store) lease.Store { return wordy{s, s, s, s} },
		"deletions are told":   func(s *memory.Store) lease.Store { return s },
		"nothing is told":      func(s *memory.Store) lease.Store { return watchless{s, s, s} },
		"nor listed":           func(s *memory.Store) lease.Store { return listless{s} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store) {
				store := less(s)
				a, b := start(t, store, "a"), start(t, store, "b")
				pa, pb := a.pool("import", 1), b.pool("import", 1)
				over := make(chan error, 1)
				go func() {
					over <- pa.Run(context.Background(), func(ctx context.Context, _ int, term lease.Term) error { <-ctx.Done(); return nil })
				}()
				synctest.Wait()
				began := time.Now()
				a.store.Partition()
				require.NoError(t, pb.Run(t.Context(), func(context.Context, int, lease.Term) error { return nil }))
				require.GreaterOrEqual(t, time.Since(began), 2*ttl/3)
				require.Less(t, time.Since(began), 2*ttl+time.Second)
				a.store.Heal()
				require.ErrorIs(t, <-over, lease.ErrExpired)
				require.NoError(t, pa.Run(t.Context(), func(context.Context, int, lease.Term) error { return nil }))
			})
		})
	}
}

func TestAPoolKeepsTheRulesOfRun(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		p := a.pool("import", 1, lease.WithPurpose("bulk"))
		why := errors.New("the work's own")
		require.ErrorIs(t, p.Run(t.Context(), func(context.Context, int, lease.Term) error { return why }), why)
		require.PanicsWithValue(t, "oops", func() {
			p.Run(t.Context(), func(context.Context, int, lease.Term) error { panic("oops") })
		})
		requireFree(t, store, "import/0")

		// Nothing is released under work that does not stop.
		done := make(chan error, 1)
		go func() {
			done <- p.Run(context.Background(), func(ctx context.Context, _ int, term lease.Term) error {
				rec, ok := standing(t, store, "import/0")
				require.True(t, ok)
				require.Equal(t, "bulk", rec.Purpose())
				<-ctx.Done()
				require.False(t, term.CheckAlive())
				time.Sleep(3 * ttl)
				require.ErrorIs(t, p.TryRun(t.Context(), noSlot), lease.ErrHeld, "here it is in use yet")
				return nil
			})
		}()
		synctest.Wait()
		a.store.Partition()
		time.Sleep(ttl)
		a.store.Heal()
		require.NoError(t, b.pool("import", 1).Run(t.Context(), func(context.Context, int, lease.Term) error { return nil }))
		require.ErrorIs(t, <-done, lease.ErrExpired)
	})
}

func TestAPoolGoesOnWhenTheStoreDoes(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		p := a.pool("import", 2)
		a.rule(faultstore.Get, faultstore.Fault{Kind: faultstore.Drop})
		require.ErrorIs(t, p.TryRun(t.Context(), noSlot), faultstore.ErrInjected)
		done := make(chan error, 1)
		go func() {
			done <- p.Run(t.Context(), func(context.Context, int, lease.Term) error { return nil })
		}()
		time.Sleep(time.Minute)
		require.Empty(t, done)
		require.Less(t, a.store.Injected(faultstore.Get), 200, "it does not spin")
		require.ErrorIs(t, p.TryRun(t.Context(), noSlot), lease.ErrHeld, "it does not wait behind those that do")
		a.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.Deny})
		time.Sleep(time.Minute)
		require.Empty(t, done)
		require.Less(t, a.store.Injected(faultstore.Acquire), 100, "it does not spin")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		a.store.SetRule(nil)
		require.NoError(t, <-done)
		require.NoError(t, p.Run(ctx, func(context.Context, int, lease.Term) error { return nil }))
	})
}

func TestAPoolIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		p := a.pool("import", 1)
		_, err := lease.NewPool(a.Keeper, "import", 1)
		require.ErrorIs(t, err, lease.ErrNameInUse)
		end, ended := make(chan struct{}), make(chan error, 3)
		go func() {
			ended <- p.Run(context.Background(), func(ctx context.Context, _ int, term lease.Term) error {
				<-end
				require.True(t, term.CheckAlive(), "Close takes nothing from under the work")
				return nil
			})
		}()
		synctest.Wait()
		for range 2 {
			go func() { ended <- p.Run(context.Background(), noSlot) }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = p.Close(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "1 slots are in use")
		for range 2 {
			require.ErrorIs(t, <-ended, lease.ErrClosed)
		}
		close(end)
		require.NoError(t, <-ended)
		require.NoError(t, p.Close(t.Context()))
		require.ErrorIs(t, p.Run(t.Context(), noSlot), lease.ErrClosed)
		require.ErrorIs(t, p.TryRun(t.Context(), noSlot), lease.ErrClosed)
		requireFree(t, store, "import/0")

		again := a.pool("import", 3)
		waits, blocked := make(chan error, 1), a.pool("blocked", 1)
		start(t, store, "b").hold("blocked/0")
		go func() { waits <- blocked.Run(context.Background(), noSlot) }()
		synctest.Wait()
		require.NoError(t, a.Close(t.Context()))
		require.ErrorIs(t, <-waits, lease.ErrClosed)
		require.ErrorIs(t, again.Run(t.Context(), noSlot), lease.ErrClosed)
		require.NoError(t, again.Close(t.Context()))
	})
}

func TestNewPoolRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		for what, c := range map[string]struct {
			name string
			n    int
			says string
		}{
			"no slot":          {"import", 0, "at least 1 and at most 1000"},
			"less":             {"import", -1, "at least 1 and at most 1000"},
			"too many":         {"import", lease.MaxSlots + 1, "at least 1 and at most 1000"},
			"no name":          {"", 1, "empty"},
			"an empty segment": {"import/", 1, "empty segment"},
			"too long":         {strings.Repeat("x", lease.MaxName-1), 1, "513 bytes, at most 512"},
			"too long for 11":  {strings.Repeat("x", lease.MaxName-2), 11, "513 bytes, at most 512"},
		} {
			_, err := lease.NewPool(a.Keeper, c.name, c.n)
			require.ErrorIs(t, err, lease.ErrInvalid, what)
			require.ErrorContains(t, err, c.says, what)
		}
		_, err := lease.NewPool(nil, "import", 1)
		require.ErrorIs(t, err, lease.ErrInvalid)
		_, err = lease.NewPool(new(lease.Keeper), "import", 1)
		require.ErrorIs(t, err, lease.ErrInvalid)
		_, err = lease.NewPool(a.Keeper, "import", 1, lease.WithTTL(1))
		require.ErrorIs(t, err, lease.ErrInvalid)
		// One that could not be made leaves no name in use.
		third := a.lease("import/2")
		_, err = lease.NewPool(a.Keeper, "import", 5)
		require.ErrorIs(t, err, lease.ErrNameInUse)
		require.NoError(t, third.Close(t.Context()))
		p := a.pool("import", 5)
		require.ErrorIs(t, p.Run(t.Context(), nil), lease.ErrInvalid)
		require.ErrorIs(t, p.TryRun(t.Context(), nil), lease.ErrInvalid)
		var none *lease.Pool
		require.ErrorIs(t, none.Run(t.Context(), noSlot), lease.ErrInvalid)
		a.pool(strings.Repeat("x", lease.MaxName-2), 10)
	})
}
