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

func TestOneWorkerHasARun(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a", nil), start(t, store, "b", nil)
		none, err := b.Get(t.Context(), "order", "42")
		require.NoError(t, err)
		require.Nil(t, none, "it is free")
		lock, err := a.Try(t.Context(), "order", "42")
		require.NoError(t, err)
		require.True(t, lock.Term().CheckAlive())
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
			holder, err := w.Get(t.Context(), "order", "42")
			require.NoError(t, err)
			require.Equal(t, runlock.Holder{
				Owner: a.keeper.Owner(), Token: lock.Term().Token(), Since: holder.Since, Expires: time.Now().Add(30 * time.Minute),
			}, *holder)
		}
		other, err := b.Try(t.Context(), "order", "43")
		require.NoError(t, err)
		require.NoError(t, other.Release(t.Context()))
		require.NoError(t, lock.Release(t.Context()))
		require.NoError(t, lock.Release(t.Context()), "again: nothing")
		require.ErrorIs(t, context.Cause(lock.Term().Context()), lease.ErrReleased)
		next, err := b.Try(t.Context(), "order", "42")
		require.NoError(t, err)
		require.Greater(t, next.Term().Token(), lock.Term().Token())
		require.NoError(t, lock.Release(t.Context()), "it takes nothing from the next")
		require.True(t, next.Term().CheckAlive())
		require.NoError(t, next.Release(t.Context()))
	})
}

// Names of runs that are alike are not the same, whatever users call them.
func TestNamesDoNotCollide(t *testing.T) {
	alike := [][2]string{
		{"a/b", "c"}, {"a", "b/c"}, {"a%2Fb", "c"}, {"a%252Fb", "c"}, {"a", "b%2Fc"}, {"a/", "b"}, {"a", "/b"}, {"a//", "b"},
		{"a", "b"}, {"A", "b"}, {"a ", "b"}, {"a", " b"}, {"..", "b"}, {"a", ".."}, {".", "b"}, {"a\n", "b"}, {"a\x00", "b"}, {"a%00", "b"},
		{"é", "b"}, {"e\u0301", "b"}, {"a", "runlock"}, {"runlock", "a"},
	}
	seen := map[string][2]string{}
	for _, x := range alike {
		name, err := runlock.Name(x[0], x[1])
		require.NoError(t, err, "%q", x)
		require.NoError(t, store.ValidateName(name), "%q", x)
		require.Equal(t, 2, strings.Count(name, "/"), "%q", name)
		other, is := seen[name]
		require.False(t, is, "%q and %q are both %q", x, other, name)
		seen[name] = x
	}
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a", nil)
		for _, x := range alike { // all at once
			lock, err := a.Try(t.Context(), x[0], x[1])
			require.NoError(t, err, "%q", x)
			defer lock.Release(t.Context())
		}
	})
}

func FuzzNames(f *testing.F) {
	f.Add("a/b", "c", "a", "b/c")
	f.Add("a%2Fb", "c", "a/b", "c")
	f.Fuzz(func(t *testing.T, w1, r1, w2, r2 string) {
		one, err1 := runlock.Name(w1, r1)
		two, err2 := runlock.Name(w2, r2)
		if err1 != nil || err2 != nil {
			return
		}
		require.NoError(t, store.ValidateName(one))
		require.Equal(t, w1 == w2 && r1 == r2, one == two)
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
			_, err = a.Get(t.Context(), x[0], x[1])
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
		require.True(t, lock.Term().CheckAlive())
		a.store.Partition()
		died := time.Now()
		for {
			if next, err := b.Try(t.Context(), "order", "42"); err == nil {
				require.NoError(t, next.Release(t.Context()))
				break
			}
			time.Sleep(time.Second)
		}
		require.GreaterOrEqual(t, time.Since(died), 19*time.Minute)
		require.LessOrEqual(t, time.Since(died), 30*time.Minute+time.Second)
		require.ErrorIs(t, context.Cause(lock.Term().Context()), lease.ErrExpired)
		a.store.Heal()
		require.NoError(t, lock.Release(t.Context()))

		quick := start(t, store, "quick", nil, runlock.WithTTL(time.Minute))
		lock, err = quick.Try(t.Context(), "order", "43")
		require.NoError(t, err)
		before = store.Stats().Renew
		time.Sleep(10 * time.Minute)
		require.InDelta(t, 30, store.Stats().Renew-before, 4)
		require.NoError(t, lock.Release(t.Context()))
	})
}

// No call takes as long as a TTL, also on a Keeper of which all takes that long.
func TestNoCallTakesATTL(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		slow := func(c *lease.Config) { c.TTL = 30 * time.Minute }
		a := start(t, store, "a", slow)
		within := func(f func() error) error {
			t.Helper()
			began := time.Now()
			err := f()
			require.LessOrEqual(t, time.Since(began), 10*time.Second)
			return err
		}
		lock, err := a.Try(t.Context(), "order", "42")
		require.NoError(t, err)
		a.store.SetRule(func(faultstore.Call) faultstore.Fault {
			return faultstore.Fault{Kind: faultstore.Drop, Hang: true}
		})
		require.Error(t, within(func() error { _, err := a.Try(t.Context(), "order", "43"); return err }))
		require.Error(t, within(func() error { _, err := a.Try(t.Context(), "order", "42"); return err }))
		require.Error(t, within(func() error { _, err := a.Get(t.Context(), "order", "42"); return err }))
		require.Error(t, within(func() error { return a.Around(t.Context(), "order", "43", notCalled) }))
		require.ErrorIs(t, within(func() error { return a.Renew(t.Context(), "order", "42", 30*time.Minute) }), lease.ErrUnknown)
		require.ErrorIs(t, within(func() error { return lock.Release(t.Context()) }), lease.ErrUnknown)
		a.store.SetRule(nil)
		require.NoError(t, a.Around(t.Context(), "order", "44", func(context.Context, lease.Term) error {
			a.store.SetRule(func(faultstore.Call) faultstore.Fault { return faultstore.Fault{Kind: faultstore.Drop} })
			time.Sleep(time.Hour / 4) // the work is not bounded
			a.store.SetRule(nil)
			return nil
		}))
		began := time.Now()
		require.ErrorIs(t, a.Around(t.Context(), "order", "44", func(context.Context, lease.Term) error {
			a.store.SetRule(func(faultstore.Call) faultstore.Fault { return faultstore.Fault{Kind: faultstore.Drop, Hang: true} })
			return nil
		}), lease.ErrUnknown)
		require.LessOrEqual(t, time.Since(began), 10*time.Second)
		a.store.SetRule(nil)
	})
}

func TestRenew(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a", nil)
		lock, err := a.Try(t.Context(), "order", "42")
		require.NoError(t, err)
		before := store.Stats().Renew
		require.NoError(t, a.Renew(t.Context(), "order", "42", time.Minute))
		require.Equal(t, before, store.Stats().Renew, "so much is left")
		time.Sleep(5 * time.Minute)
		require.NoError(t, a.Renew(t.Context(), "order", "42", 30*time.Minute))
		require.Equal(t, before+1, store.Stats().Renew)
		at := time.Now()
		a.store.Partition() // as if the process stood still: it stays for all of that time
		time.Sleep(30*time.Minute - time.Second)
		rec, err := store.Get(t.Context(), "runlock/order/42")
		require.NoError(t, err)
		require.Len(t, rec, 1)
		require.Less(t, time.Since(at), 30*time.Minute)
		a.store.Heal()
		synctest.Wait()
		require.ErrorIs(t, a.Renew(t.Context(), "order", "42", time.Minute), lease.ErrNotHeld, "the worker itself has stopped trusting it")
		for _, ttl := range []time.Duration{0, -1, 30*time.Minute + 1} {
			err := a.Renew(t.Context(), "order", "42", ttl)
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.ErrorContains(t, err, "at most the TTL of 30m0s")
		}
		require.NoError(t, lock.Release(t.Context()))
		require.ErrorIs(t, a.Renew(t.Context(), "order", "42", time.Minute), lease.ErrNotHeld)
		require.NoError(t, a.Around(t.Context(), "order", "42", func(ctx context.Context, _ lease.Term) error {
			time.Sleep(5 * time.Minute)
			before := store.Stats().Renew
			require.NoError(t, a.Renew(ctx, "order", "42", 30*time.Minute), "that of an Around")
			require.Equal(t, before+1, store.Stats().Renew)
			require.ErrorIs(t, a.Renew(ctx, "order", "43", time.Minute), lease.ErrNotHeld, "another run")
			return nil
		}))
		require.ErrorIs(t, a.Renew(t.Context(), "order", "42", time.Minute), lease.ErrNotHeld)
	})
}

func TestAroundKeepsTheRulesOfRun(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a", nil), start(t, store, "b", nil)
		free := func() {
			t.Helper()
			holder, err := b.Get(t.Context(), "order", "42")
			require.NoError(t, err)
			require.Nil(t, holder)
		}
		why := errors.New("the work's own")
		require.ErrorIs(t, a.Around(t.Context(), "order", "42", func(ctx context.Context, term lease.Term) error {
			require.Equal(t, "runlock/order/42", term.Name())
			require.ErrorIs(t, b.Around(t.Context(), "order", "42", notCalled), lease.ErrHeld)
			return why
		}), why)
		free()
		require.PanicsWithValue(t, "oops", func() {
			a.Around(t.Context(), "order", "42", func(context.Context, lease.Term) error { panic("oops") })
		})
		free()

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
		require.NoError(t, other.Release(t.Context()))
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
	inputtest.Zeros(t, map[string]string{}, new(runlock.Locks), new(runlock.Lock))
	require.Nil(t, (*runlock.Lock)(nil).Term())
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a", nil)
		lock, err := a.Try(t.Context(), "w", "r")
		require.NoError(t, err)
		inputtest.Contexts(t, lock)
		inputtest.Contexts(t, a.Locks)
		require.True(t, lock.Term().CheckAlive(), "what is refused has changed nothing")
		_, err = a.Try(inputtest.None, "w", "s")
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorIs(t, a.Around(inputtest.None, "w", "s", notCalled), lease.ErrInvalid)
		require.ErrorIs(t, a.Renew(inputtest.None, "w", "r", time.Minute), lease.ErrInvalid)
		require.NoError(t, lock.Release(t.Context()))
	})
}
