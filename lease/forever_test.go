package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

func TestRunForeverLeadsAgainAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		la := a.lease("job")
		ctx, cancel := context.WithCancel(context.Background())
		var tokens []lease.Token
		done := meanwhile(func() error {
			return lease.RunForever(ctx, la, func(ctx context.Context, term lease.Term) error {
				tokens = append(tokens, term.Token())
				<-ctx.Done()
				return nil // a loss is a loss, though f says that it is content
			})
		})
		synctest.Wait()
		for lost := range 3 {
			require.Len(t, tokens, lost+1)
			a.store.Partition()
			time.Sleep(ttl + time.Second)
			synctest.Wait()
			require.Len(t, tokens, lost+1, "nothing is led behind a partition")
			a.store.Heal()
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		require.Len(t, tokens, 4)
		require.IsIncreasing(t, tokens)
		cancel()
		require.NoError(t, <-done, "f returned nil, and the term stood")
		requireFree(t, store, "job")
	})
}

func TestWhatFReturnsToRunForever(t *testing.T) {
	why := errors.New("the work's own")
	for name, c := range map[string]struct {
		f     func(n int, l lease.Lease) error
		calls int
		is    []error // none: nil is returned
	}{
		"nil: it is over":          {func(int, lease.Lease) error { return nil }, 1, nil},
		"ErrStop":                  {func(int, lease.Lease) error { return fmt.Errorf("%w: %w", lease.ErrStop, why) }, 1, []error{lease.ErrStop, why}},
		"errors, and then nil":     {func(n int, _ lease.Lease) error { return []error{why, why, nil}[n] }, 3, nil},
		"it steps down, then ends": {func(n int, l lease.Lease) error { return []error{l.Release(context.Background()), nil}[min(n, 1)] }, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				h := start(t, store, "a").lease("job")
				calls := 0
				err := lease.RunForever(t.Context(), h, func(context.Context, lease.Term) error {
					defer func() { calls++ }()
					if name == "it steps down, then ends" && calls > 0 {
						return nil
					}
					return c.f(calls, h)
				})
				require.Equal(t, c.calls, calls)
				if c.is == nil {
					require.NoError(t, err)
				}
				for _, is := range c.is {
					require.ErrorIs(t, err, is)
				}
				requireFree(t, store, "job")
			})
		})
	}
}

// The pauses double up to the longest, with jitter, and begin anew after a term that lasted.
func TestThePausesOfRunForever(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		h := start(t, store, "a").lease("job")
		var calls []time.Time
		var ended time.Time
		var pauses []time.Duration
		err := lease.RunForever(t.Context(), h, func(context.Context, lease.Term) error {
			calls = append(calls, time.Now())
			if len(calls) > 1 {
				pauses = append(pauses, time.Since(ended))
			}
			requireHeld(t, store, "job")
			defer func() { ended = time.Now() }()
			switch len(calls) {
			case 8:
				time.Sleep(31 * time.Second)
			case 10:
				return lease.ErrStop
			}
			return errors.New("no")
		})
		require.ErrorIs(t, err, lease.ErrStop)
		want := []time.Duration{1, 2, 4, 8, 16, 30, 30, 1, 2}
		require.Len(t, pauses, len(want))
		for i, p := range pauses {
			require.GreaterOrEqual(t, p, want[i]*time.Second/2, "pause %d", i)
			require.LessOrEqual(t, p, want[i]*time.Second, "pause %d", i)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		began, n := time.Now(), 0
		err := lease.RunForever(t.Context(), &plain{}, func(context.Context, lease.Term) error {
			if n++; n == 11 {
				return lease.ErrStop
			}
			return errors.New("no")
		}, lease.WithBackoff(time.Millisecond, 4*time.Millisecond))
		require.ErrorIs(t, err, lease.ErrStop)
		require.Less(t, time.Since(began), 40*time.Millisecond)
		require.Greater(t, time.Since(began), 15*time.Millisecond)
	})
}

// While one pauses after its own error, another leads.
func TestAnErrorGivesOthersTheirChance(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 2)
		var bad, good atomic.Int32
		for id, f := range map[string]func(context.Context, lease.Term) error{
			"a": func(context.Context, lease.Term) error { bad.Add(1); return errors.New("no") },
			"b": func(ctx context.Context, _ lease.Term) error { good.Add(1); <-ctx.Done(); return ctx.Err() },
		} {
			h := start(t, store, id).lease("job")
			go func() { done <- lease.RunForever(ctx, h, f) }()
		}
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, good.Load())
		require.LessOrEqual(t, bad.Load(), int32(1))
		cancel()
		for range 2 {
			require.ErrorIs(t, <-done, context.Canceled)
		}
		requireFree(t, store, "job")
	})
}

func TestHowRunForeverEnds(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		wait := func(ctx context.Context, h *lease.Handle, f func(context.Context, lease.Term) error) <-chan error {
			done := meanwhile(func() error { return lease.RunForever(ctx, h, f) })
			synctest.Wait()
			return done
		}
		until := func(ctx context.Context, _ lease.Term) error { <-ctx.Done(); return context.Cause(ctx) }

		h := a.lease("closed")
		working := wait(context.Background(), h, until)
		waiting := wait(context.Background(), b.lease("closed"), notCalled)
		ctx, cancel := context.WithCancel(context.Background())
		paused := wait(ctx, b.lease("paused"), func(context.Context, lease.Term) error { return errors.New("its own") })
		cancel()
		err := <-paused
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "its own")
		require.NoError(t, b.Close(t.Context()))
		require.ErrorIs(t, <-waiting, lease.ErrClosed)
		began := time.Now()
		require.NoError(t, a.Close(t.Context()))
		require.ErrorIs(t, <-working, lease.ErrClosed)
		require.Zero(t, time.Since(began))
		require.ErrorIs(t, lease.RunForever(t.Context(), h, notCalled), lease.ErrClosed)

		require.PanicsWithValue(t, "oops", func() {
			lease.RunForever(t.Context(), &plain{}, func(context.Context, lease.Term) error { panic("oops") })
		})
	})
}

// What is no record stands under the name until an operator deletes it.
func TestRunForeverOutlastsABadRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &bad{}
		p.times.Store(5)
		require.ErrorIs(t, lease.Run(t.Context(), p, notCalled), lease.ErrBadRecord)
		require.NoError(t, lease.RunForever(t.Context(), p, func(context.Context, lease.Term) error { return nil }))
	})
}

// bad says so many times that its record is none.
type bad struct {
	plain
	times atomic.Int32
}

func (b *bad) Acquire(ctx context.Context) (bool, error) {
	if b.times.Add(-1) >= 0 {
		return false, lease.ErrBadRecord
	}
	return b.plain.Acquire(ctx)
}

func TestRunForeverRefuses(t *testing.T) {
	l := &plain{}
	require.ErrorIs(t, lease.RunForever(t.Context(), nil, notCalled), lease.ErrInvalid)
	require.ErrorIs(t, lease.RunForever(t.Context(), l, nil), lease.ErrInvalid)
	for _, o := range []lease.RunOption{
		nil, lease.WithBackoff(0, time.Second), lease.WithBackoff(-1, time.Second), lease.WithBackoff(2*time.Second, time.Second),
		lease.WithBackoff(time.Second, 366*24*time.Hour),
	} {
		require.ErrorIs(t, lease.RunForever(t.Context(), l, notCalled, o), lease.ErrInvalid)
	}
}

func requireHeld(t *testing.T, store store.Store, name string) {
	t.Helper()
	_, ok := standing(t, store, name)
	require.True(t, ok, "%s is held", name)
}
