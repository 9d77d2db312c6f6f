package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func notCalled(context.Context, lease.Term) error { panic("not called") }

func TestTryRunSkipsWhatAnotherHas(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.hold("job"), b.lease("job")
		for name, l := range map[string]lease.Lease{"the handle": lb, "a wrapper": wrapped{lb}} {
			began := time.Now()
			ctx := within(t, time.Minute)
			err := lease.TryRun(ctx, l, notCalled)
			require.ErrorIs(t, err, lease.ErrHeld, name)
			var held *lease.HeldError
			require.ErrorAs(t, err, &held, name)
			require.Equal(t, "a", held.Record.Owner.ID)
			require.Equal(t, token(t, la), held.Record.Token)
			require.ErrorContains(t, err, `"job"`)
			require.Zero(t, time.Since(began), "it does not wait")
		}
		err := lease.TryRun(t.Context(), opaque{lb}, notCalled)
		require.ErrorIs(t, err, lease.ErrHeld, "a lease that can't tell its holder")
		require.True(t, la.CheckAlive())
		require.NoError(t, la.Release(t.Context()))

		why := errors.New("the work's own")
		require.ErrorIs(t, lease.TryRun(t.Context(), lb, func(ctx context.Context, term lease.Term) error {
			require.True(t, term.CheckAlive())
			require.Equal(t, token(t, lb), term.Token())
			return why
		}), why)
		requireFree(t, store, "job")
	})
}

// In one process a name has one handle: who works under it, or waits for it, is another.
func TestTryRunSkipsWhatARunOfThisProcessIsAbout(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.lease("job"), b.lease("job")
		end, ended := make(chan struct{}), make(chan error, 2)
		go func() {
			ended <- lease.Run(context.Background(), la, func(context.Context, lease.Term) error { <-end; return nil })
		}()
		synctest.Wait()
		err := lease.TryRun(t.Context(), wrapped{la}, notCalled)
		var held *lease.HeldError
		require.ErrorAs(t, err, &held)
		require.Equal(t, "a", held.Record.Owner.ID)
		require.True(t, la.CheckAlive(), "it did not release it under the other's work")

		go func() {
			ended <- lease.Run(context.Background(), lb, func(context.Context, lease.Term) error { <-end; return nil })
		}()
		synctest.Wait()
		require.ErrorIs(t, lease.TryRun(t.Context(), lb, notCalled), lease.ErrHeld, "another call waits")
		close(end)
		require.NoError(t, <-ended)
		require.NoError(t, <-ended)
		ran := false
		require.NoError(t, lease.TryRun(t.Context(), lb, func(context.Context, lease.Term) error { ran = true; return nil }))
		require.True(t, ran)
	})
}

func TestTryRunKeepsTheRulesOfRun(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		la := a.lease("job")
		require.PanicsWithValue(t, "oops", func() {
			lease.TryRun(t.Context(), la, func(context.Context, lease.Term) error { panic("oops") })
		})
		requireFree(t, store, "job")

		var cancelled, returned time.Time
		done := meanwhile(func() error {
			return lease.TryRun(context.Background(), la, func(ctx context.Context, term lease.Term) error {
				<-ctx.Done()
				cancelled = time.Now()
				require.False(t, term.CheckAlive())
				time.Sleep(3 * ttl)
				returned = time.Now()
				return nil
			})
		})
		synctest.Wait()
		a.store.Partition()
		time.Sleep(ttl)
		a.store.Heal()
		require.ErrorIs(t, <-done, lease.ErrExpired)
		require.Equal(t, 3*ttl, returned.Sub(cancelled))

		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, lease.TryRun(ctx, la, func(ctx context.Context, _ lease.Term) error {
			cancel()
			<-ctx.Done()
			return nil
		}))
		requireFree(t, store, "job")
		require.ErrorIs(t, lease.TryRun(ctx, la, notCalled), context.Canceled)

		p := &plain{}
		p.refuse.Store(1)
		require.ErrorIs(t, lease.TryRun(t.Context(), p, notCalled), lease.ErrHeld)
		require.EqualValues(t, 1, p.acquired.Load(), "one attempt")
		b := &bornDead{}
		require.ErrorIs(t, lease.TryRun(t.Context(), b, notCalled), lease.ErrExpired)
		require.EqualValues(t, 1, b.released.Load())
	})
}

func TestTryRunTellsWhatKeptItFromAcquiring(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		la := a.lease("job")
		a.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.Drop, Hang: true})
		began := time.Now()
		require.ErrorIs(t, lease.TryRun(t.Context(), la, notCalled), lease.ErrUnknown)
		require.Equal(t, ttl, time.Since(began), "OperationTimeout bounds it")
		a.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.Deny})
		require.ErrorIs(t, lease.TryRun(t.Context(), la, notCalled), lease.ErrDenied)
		a.store.SetRule(nil)
		require.NoError(t, a.Close(t.Context()))
		require.ErrorIs(t, lease.TryRun(t.Context(), la, notCalled), lease.ErrClosed)
		require.ErrorIs(t, lease.TryRun(t.Context(), nil, notCalled), lease.ErrInvalid)
		require.ErrorIs(t, lease.TryRun(t.Context(), la, nil), lease.ErrInvalid)
		require.ErrorIs(t, lease.TryRun(t.Context(), unlike{Lease: la}, notCalled), lease.ErrInvalid)
	})
}

// ErrHeld says that f did not run: an f that failed as something else is held does not have it said.
func TestErrHeldSaysThatTheWorkDidNotRun(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		b.hold("inner")
		inner := a.lease("inner")
		pool, err := lease.NewPool(a.Keeper, "pool", 1)
		require.NoError(t, err)
		work := func(ctx context.Context) error {
			err := lease.TryRun(ctx, inner, notCalled)
			require.ErrorIs(t, err, lease.ErrHeld)
			return err
		}
		for what, err := range map[string]error{
			"TryRun":      lease.TryRun(t.Context(), a.lease("job"), func(ctx context.Context, _ lease.Term) error { return work(ctx) }),
			"Pool.TryRun": pool.TryRun(t.Context(), func(ctx context.Context, _ int, _ lease.Term) error { return work(ctx) }),
		} {
			require.NotErrorIs(t, err, lease.ErrHeld, what)
			var held *lease.HeldError
			require.False(t, errors.As(err, &held), what)
			require.ErrorContains(t, err, `"inner"`, what)
		}
		require.NoError(t, pool.Close(t.Context()))
	})
}
