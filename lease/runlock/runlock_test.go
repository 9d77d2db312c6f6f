package runlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/runlock"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// worker is a process with locks.
type worker struct {
	*runlock.Locks
	keeper *lease.Keeper
	store  *faultstore.Store
}

func start(t *testing.T, store store.Store, id string, change func(*lease.Config), opts ...runlock.Option) *worker {
	t.Helper()
	w := &worker{store: faultstore.Wrap(store)}
	cfg := lease.Config{ID: id, Logger: zap.NewNop()}
	if change != nil {
		change(&cfg)
	}
	var err error
	w.keeper, err = lease.NewKeeper(w.store, cfg)
	require.NoError(t, err)
	w.Locks, err = runlock.New(w.keeper, opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		w.store.SetRule(nil)
		w.store.Heal()
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		w.keeper.Close(ctx)
		w.store.Wait()
	})
	return w
}

func bubble(t *testing.T, f func(t *testing.T, store *memory.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, memory.New()) })
}

func notCalled(context.Context, lease.Term) error { panic("not called") }

func nothing(context.Context, lease.Term) error { return nil }

// free requires that no worker has a run.
func (w *worker) free(t *testing.T, workflow, run string) {
	t.Helper()
	name, err := runlock.Name(workflow, run)
	require.NoError(t, err)
	_, err = w.keeper.Get(t.Context(), name)
	require.ErrorIs(t, err, lease.ErrNotHeld, "no worker has %q", name)
}

// term is that of a lock.
func term(t *testing.T, lock *lease.Handle) lease.Term {
	t.Helper()
	held, ok := lock.Term()
	require.True(t, ok)
	return held
}

func TestOneWorkerHasARun(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a", nil), start(t, store, "b", nil)
		b.free(t, "order", "42")
		lock, err := a.Try(t.Context(), "order", "42")
		require.NoError(t, err)
		require.True(t, lock.CheckAlive())
		first := term(t, lock)
		for _, w := range []*worker{a, b} { // another worker of this process is another, too
			began := time.Now()
			_, err = w.Try(t.Context(), "order", "42")
			var held *lease.HeldError
			require.ErrorAs(t, err, &held)
			require.ErrorIs(t, err, lease.ErrHeld)
			require.Equal(t, "a", held.Record.Owner.ID)
			err = w.Around(t.Context(), "order", "42", notCalled)
			require.ErrorIs(t, err, lease.ErrHeld)
			require.Zero(t, time.Since(began))
		}
		for _, alike := range [][2]string{{"order", "43"}, {"order/42", "x"}, {"order", "42/x"}} {
			other, err := b.Try(t.Context(), alike[0], alike[1])
			require.NoError(t, err)
			defer other.Close(t.Context())
		}
		require.NoError(t, lock.Close(t.Context()))
		require.NoError(t, lock.Close(t.Context()), "again: nothing")
		require.ErrorIs(t, context.Cause(first.Context()), lease.ErrReleased)
		next, err := b.Try(t.Context(), "order", "42")
		require.NoError(t, err)
		require.Greater(t, term(t, next).Token(), first.Token())
		require.NoError(t, lock.Close(t.Context()), "it takes nothing from the next")
		require.True(t, next.CheckAlive())
		require.NoError(t, next.Close(t.Context()))
	})
}

func TestNamesThatAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a", nil)
		for what, x := range map[string][2]string{
			"no workflow": {"", "r"}, "no run": {"w", ""}, "not UTF-8": {"w", "\xff"},
			"too long": {"w", strings.Repeat("x", 503)}, "too long when escaped": {strings.Repeat("/", 168), "r"},
		} {
			_, err := a.Try(t.Context(), x[0], x[1])
			require.ErrorIs(t, err, lease.ErrInvalid, what)
			require.ErrorIs(t, a.Around(t.Context(), x[0], x[1], notCalled), lease.ErrInvalid, what)
		}
		require.NoError(t, a.Around(t.Context(), "w", strings.Repeat("x", 502), nothing))
		_, err := a.Try(t.Context(), "w", strings.Repeat("x", 503))
		require.ErrorContains(t, err, "513 bytes when escaped, at most 512")
	})
}

// A lock is renewed every ten minutes for as long as its worker lives, and outlives it by half
// an hour at the most.
func TestHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a", nil), start(t, store, "b", nil)
		lock, err := a.Try(t.Context(), "order", "42")
		require.NoError(t, err)
		before := store.Stats().Renew
		time.Sleep(10 * time.Hour)
		require.InDelta(t, 60, store.Stats().Renew-before, 7)
		require.True(t, lock.CheckAlive())
		a.store.Partition()
		died := time.Now()
		for {
			if next, err := b.Try(t.Context(), "order", "42"); err == nil {
				require.NoError(t, next.Close(t.Context()))
				break
			}
			time.Sleep(time.Second)
		}
		require.GreaterOrEqual(t, time.Since(died), 19*time.Minute)
		require.LessOrEqual(t, time.Since(died), 30*time.Minute+time.Second)
		require.False(t, lock.CheckAlive())
		a.store.Heal()
		require.NoError(t, lock.Close(t.Context()))

		quick := start(t, store, "quick", nil, runlock.WithTTL(time.Minute))
		lock, err = quick.Try(t.Context(), "order", "43")
		require.NoError(t, err)
		before = store.Stats().Renew
		time.Sleep(10 * time.Minute)
		require.InDelta(t, 30, store.Stats().Renew-before, 4)
		require.NoError(t, lock.Close(t.Context()))
	})
}

// No call takes as long as a TTL, also on a Keeper of which all takes that long.
func TestNoCallTakesATTL(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a", func(c *lease.Config) { c.TTL = 30 * time.Minute })
		within := func(f func() error) {
			t.Helper()
			began := time.Now()
			require.Error(t, f())
			require.LessOrEqual(t, time.Since(began), 30*time.Second)
		}
		hang := func(faultstore.Call) faultstore.Fault { return faultstore.Fault{Kind: faultstore.Drop, Hang: true} }
		lock, err := a.Try(t.Context(), "order", "42")
		require.NoError(t, err)
		a.store.SetRule(hang)
		for _, run := range []string{"42", "43"} {
			within(func() error { _, err := a.Try(t.Context(), "order", run); return err })
			within(func() error { return a.Around(t.Context(), "order", run, notCalled) })
		}
		within(func() error { return lock.Close(t.Context()) })
		a.store.SetRule(nil)
		var ended time.Time
		require.ErrorIs(t, a.Around(t.Context(), "order", "44", func(context.Context, lease.Term) error {
			a.store.SetRule(hang)
			time.Sleep(time.Hour / 4) // the work is not bounded
			ended = time.Now()
			return nil
		}), lease.ErrUnknown)
		require.LessOrEqual(t, time.Since(ended), 30*time.Second)
		a.store.SetRule(nil)
	})
}

func TestAroundKeepsTheRulesOfRun(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a", nil), start(t, store, "b", nil)
		why := errors.New("the work's own")
		require.ErrorIs(t, a.Around(t.Context(), "order", "42", func(ctx context.Context, term lease.Term) error {
			require.Equal(t, "runlock/order/42", term.Name())
			require.ErrorIs(t, b.Around(t.Context(), "order", "42", notCalled), lease.ErrHeld)
			return why
		}), why)
		b.free(t, "order", "42")
		require.PanicsWithValue(t, "oops", func() {
			a.Around(t.Context(), "order", "42", func(context.Context, lease.Term) error { panic("oops") })
		})
		b.free(t, "order", "42")

		done := make(chan error, 1)
		go func() {
			done <- a.Around(context.Background(), "order", "42", func(ctx context.Context, term lease.Term) error {
				<-ctx.Done()
				require.False(t, term.CheckAlive())
				require.ErrorIs(t, context.Cause(ctx), lease.ErrExpired)
				require.ErrorIs(t, a.Around(ctx, "order", "42", notCalled), lease.ErrHeld, "what is lost is no lock to nest in")
				time.Sleep(time.Hour)
				return nil
			})
		}()
		synctest.Wait()
		a.store.Partition()
		time.Sleep(40 * time.Minute)
		a.store.Heal()
		require.NoError(t, b.Around(t.Context(), "order", "42", nothing), "the TTL is over")
		require.ErrorIs(t, a.Around(t.Context(), "order", "42", notCalled), lease.ErrHeld, "the work under the lost lock goes on here")
		require.ErrorIs(t, <-done, lease.ErrExpired)
		require.NoError(t, a.Around(t.Context(), "order", "42", nothing))
	})
}

// A restart resumes: the hooks around both are of one worker.
func TestHooksNest(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a", nil)
		var stale context.Context
		ran := false
		require.NoError(t, a.Around(t.Context(), "order", "42", func(ctx context.Context, outer lease.Term) error {
			stale = ctx
			require.ErrorIs(t, a.Around(t.Context(), "order", "42", notCalled), lease.ErrHeld, "another call chain")
			require.NoError(t, a.Around(ctx, "order", "43", nothing), "another run")
			return a.Around(ctx, "order", "42", func(ctx context.Context, inner lease.Term) error {
				require.Equal(t, outer.Token(), inner.Token())
				require.NoError(t, ctx.Err())
				ran = true
				return nil
			})
		}))
		require.True(t, ran)
		// A context that outlives its lock means nothing.
		require.NoError(t, a.Around(context.WithoutCancel(stale), "order", "42", func(_ context.Context, term lease.Term) error {
			require.True(t, term.CheckAlive())
			return nil
		}))
		// One that was cut off from the lock's end is not, within.
		done := make(chan error, 1)
		go func() {
			done <- a.Around(context.Background(), "order", "42", func(ctx context.Context, _ lease.Term) error {
				return a.Around(context.WithoutCancel(ctx), "order", "42", func(ctx context.Context, _ lease.Term) error {
					<-ctx.Done()
					return context.Cause(ctx)
				})
			})
		}()
		synctest.Wait()
		a.store.Partition()
		require.ErrorIs(t, <-done, lease.ErrExpired)
		a.store.Heal()
	})
}

// ErrHeld says that another worker has the run, not that the work, within or not, met one of another run.
func TestErrHeldIsOfTheRun(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a", nil), start(t, store, "b", nil)
		other, err := b.Try(t.Context(), "ship", "9")
		require.NoError(t, err)
		work := func(ctx context.Context, _ lease.Term) error {
			err := a.Around(ctx, "ship", "9", notCalled)
			require.ErrorIs(t, err, lease.ErrHeld)
			return err
		}
		err = a.Around(t.Context(), "order", "42", func(ctx context.Context, _ lease.Term) error {
			err := a.Around(ctx, "order", "42", work)
			require.NotErrorIs(t, err, lease.ErrHeld)
			require.ErrorContains(t, err, `"runlock/ship/9"`)
			return work(ctx, nil)
		})
		require.NotErrorIs(t, err, lease.ErrHeld)
		require.ErrorContains(t, err, `"runlock/ship/9"`)
		require.NoError(t, other.Close(t.Context()))
	})
}

func TestWhatNewRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		k, err := lease.NewKeeper(store, lease.Config{ID: "a", Logger: zap.NewNop()})
		require.NoError(t, err)
		for what, opts := range map[string][]runlock.Option{
			"an option that is nil":   {nil},
			"a TTL that is too short": {runlock.WithTTL(time.Millisecond)},
			"too long":                {runlock.WithTTL(366 * 24 * time.Hour)},
			"below zero":              {runlock.WithTTL(-1)},
		} {
			_, err := runlock.New(k, opts...)
			require.ErrorIs(t, err, lease.ErrInvalid, what)
			require.ErrorContains(t, err, "runlock.New", what)
		}
		_, err = runlock.New(nil)
		require.ErrorIs(t, err, lease.ErrInvalid)
		_, err = runlock.New(new(lease.Keeper))
		require.ErrorIs(t, err, lease.ErrInvalid)
		l, err := runlock.New(k)
		require.NoError(t, err)
		require.NoError(t, l.Around(t.Context(), "w", "r", func(context.Context, lease.Term) error {
			recs, err := store.Get(t.Context(), "runlock/w/r")
			require.NoError(t, err)
			require.Equal(t, 30*time.Minute, recs[0].TTL)
			return nil
		}))
		require.ErrorIs(t, l.Around(t.Context(), "w", "r", nil), lease.ErrInvalid)
		require.NoError(t, k.Close(t.Context()))
		_, err = l.Try(t.Context(), "w", "r")
		require.ErrorIs(t, err, lease.ErrClosed)
		_, err = runlock.New(k)
		require.ErrorIs(t, err, lease.ErrClosed)
	})
}

func TestBadInput(t *testing.T) {
	inputtest.Zeros(t, map[string]string{}, new(runlock.Locks))
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a", nil)
		inputtest.Contexts(t, a.Locks)
		require.ErrorIs(t, a.Around(inputtest.None, "w", "s", notCalled), lease.ErrInvalid)
	})
}
