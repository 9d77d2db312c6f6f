package lease_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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

func (n *node) pool(name string, slots int, opts ...lease.Option) *lease.Pool {
	n.t.Helper()
	p, err := lease.NewPool(n.Keeper, name, slots, opts...)
	require.NoError(n.t, err)
	return p
}

func noSlot(context.Context, int, lease.Term) error { panic("not called") }

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
					time.Sleep(time.Duration(1<<i) * time.Millisecond) // no two end at one moment
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
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
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
		ctx := within(t, time.Second)
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

func TestAPoolKeepsTheRulesOfRun(t *testing.T) {
	onTwo(t, func(t *testing.T, store *memory.Store, a, b *node) {
		p := a.pool("import", 1, lease.WithMetadata(map[string]string{"for": "bulk"}))
		why := errors.New("the work's own")
		require.ErrorIs(t, p.Run(t.Context(), func(context.Context, int, lease.Term) error { return why }), why)
		require.PanicsWithValue(t, "oops", func() {
			p.Run(t.Context(), func(context.Context, int, lease.Term) error { panic("oops") })
		})
		requireFree(t, store, "import/0")

		// Nothing is released under work that does not stop.
		done := meanwhile(func() error {
			return p.Run(context.Background(), func(ctx context.Context, _ int, term lease.Term) error {
				rec, ok := standing(t, store, "import/0")
				require.True(t, ok)
				require.Equal(t, "bulk", rec.Metadata["for"])
				<-ctx.Done()
				require.False(t, term.CheckAlive())
				time.Sleep(3 * ttl)
				require.ErrorIs(t, p.TryRun(t.Context(), noSlot), lease.ErrHeld, "here it is in use yet")
				return nil
			})
		})
		synctest.Wait()
		a.store.Partition()
		time.Sleep(ttl)
		a.store.Heal()
		require.NoError(t, b.pool("import", 1).Run(t.Context(), func(context.Context, int, lease.Term) error { return nil }))
		require.ErrorIs(t, <-done, lease.ErrExpired)
	})
}

func TestAPoolGoesOnWhenTheStoreDoes(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
		p := a.pool("import", 2)
		a.rule(faultstore.Get, faultstore.Fault{Kind: faultstore.Drop})
		require.ErrorIs(t, p.TryRun(t.Context(), noSlot), faultstore.ErrInjected)
		done := meanwhile(func() error {
			return p.Run(t.Context(), func(context.Context, int, lease.Term) error { return nil })
		})
		time.Sleep(time.Minute)
		require.Empty(t, done)
		require.Less(t, a.store.Injected(faultstore.Get), 200, "it does not spin")
		require.ErrorIs(t, p.TryRun(t.Context(), noSlot), lease.ErrHeld, "it does not wait behind those that do")
		a.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.Deny})
		time.Sleep(time.Minute)
		require.Empty(t, done)
		require.Less(t, a.store.Injected(faultstore.Acquire), 100, "it does not spin")
		ctx := within(t, time.Minute)
		a.store.SetRule(nil)
		require.NoError(t, <-done)
		require.NoError(t, p.Run(ctx, func(context.Context, int, lease.Term) error { return nil }))
	})
}

func TestAPoolIsClosed(t *testing.T) {
	onOne(t, func(t *testing.T, store *memory.Store, a *node) {
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
		ctx := within(t, time.Second)
		err = p.Close(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "1 slots are in use")
		require.ErrorIs(t, p.TryRun(t.Context(), noSlot), lease.ErrClosed, "also while each slot is in use")
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

// A call that waits for what is in use here hears of the Keeper's end from no slot.
func TestTheEndOfItsKeeperEndsWhatWaitsForAPool(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
		p := a.pool("import", 1)
		end := make(chan struct{})
		works := meanwhile(func() error {
			return p.Run(context.Background(), func(context.Context, int, lease.Term) error { <-end; return nil })
		})
		synctest.Wait()
		waits := meanwhile(func() error { return p.Run(context.Background(), noSlot) })
		synctest.Wait()
		ctx := within(t, time.Second)
		require.ErrorIs(t, a.Close(ctx), lease.ErrUnknown)
		synctest.Wait()
		require.Len(t, waits, 1)
		require.ErrorIs(t, <-waits, lease.ErrClosed)
		close(end)
		require.Error(t, <-works)
	})
}

func TestNewPoolRefuses(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
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
			"too long":         {strings.Repeat("x", store.MaxName-1), 1, "513 bytes, at most 512"},
			"too long for 11":  {strings.Repeat("x", store.MaxName-2), 11, "513 bytes, at most 512"},
		} {
			_, err := lease.NewPool(a.Keeper, c.name, c.n)
			require.ErrorIs(t, err, lease.ErrInvalid, what)
			require.ErrorContains(t, err, c.says, what)
		}
		_, err := lease.NewPool(nil, "import", 1)
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
		a.pool(strings.Repeat("x", store.MaxName-2), 10)
	})
}
