package lease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// schema is what Once is run for in these tests: it is at some version, or not.
type schema struct {
	mu    sync.Mutex
	is    bool
	asked int
	runs  int
}

func (s *schema) done(context.Context) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.is, nil
}

func (s *schema) migrate(context.Context, lease.Term) error {
	time.Sleep(ttl)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.is = true
	s.runs++
	return nil
}

func TestOnceOneRunsItAndTheOthersWait(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		var s schema
		const nodes = 20
		ended := make(chan time.Duration, nodes)
		began := time.Now()
		for i := range nodes {
			h := start(t, store, string(rune('a'+i))).lease("migrations")
			go func() {
				require.NoError(t, lease.Once(t.Context(), h, s.done, s.migrate))
				ended <- time.Since(began)
			}()
		}
		for range nodes {
			took := <-ended
			require.GreaterOrEqual(t, took, ttl)
			require.Less(t, took, ttl+100*time.Millisecond, "who waited need not have the lease in turn")
		}
		require.Equal(t, 1, s.runs)
		requireFree(t, store, "migrations")
		before := store.Stats().Acquire
		late := start(t, store, "late").lease("migrations")
		require.NoError(t, lease.Once(t.Context(), late, s.done, notCalled))
		require.Equal(t, before, store.Stats().Acquire, "who comes late asks for no lease")
	})
}

func TestWhatEndsOnce(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		h := a.lease("migrations")
		why := errors.New("no such table")
		never := func(context.Context) (bool, error) { return false, nil }
		err := lease.Once(t.Context(), h, never, func(context.Context, lease.Term) error { return why })
		require.ErrorIs(t, err, why)
		err = lease.Once(t.Context(), h, never, func(context.Context, lease.Term) error { return nil })
		require.ErrorIs(t, err, lease.ErrNotDone)
		require.ErrorContains(t, err, `"migrations"`)
		asked := 0
		for _, at := range []int{1, 2, 3} { // before, under the lease, and after
			asked = 0
			ran := false
			err = lease.Once(t.Context(), h, func(context.Context) (bool, error) {
				if asked++; asked == at {
					return true, why // the error counts
				}
				return false, nil
			}, func(context.Context, lease.Term) error { ran = true; return nil })
			require.ErrorIs(t, err, why)
			require.Equal(t, at, asked)
			require.Equal(t, at == 3, ran)
			requireFree(t, store, "migrations")
		}
		require.PanicsWithValue(t, "oops", func() {
			lease.Once(t.Context(), h, never, func(context.Context, lease.Term) error { panic("oops") })
		})
		require.PanicsWithValue(t, "oops", func() {
			lease.Once(t.Context(), h, func(context.Context) (bool, error) { panic("oops") }, notCalled)
		})
		requireFree(t, store, "migrations")

		// While another has it.
		b := start(t, store, "b")
		b.hold("migrations")
		ctx := within(t, time.Minute)
		require.ErrorIs(t, lease.Once(ctx, h, never, notCalled), context.DeadlineExceeded)
		require.NoError(t, a.Close(t.Context()))
		require.ErrorIs(t, lease.Once(t.Context(), h, never, notCalled), lease.ErrClosed)
	})
}

// It is done, so what becomes of the release is no error of the caller's.
func TestOnceIsContentThoughItCantRelease(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		var s schema
		a := start(t, store, "a")
		require.NoError(t, lease.Once(t.Context(), a.lease("migrations"), s.done, func(ctx context.Context, term lease.Term) error {
			a.store.Partition()
			s.is = true
			return nil
		}))
	})
}

func TestOnceRefuses(t *testing.T) {
	var s schema
	l := &plain{}
	require.ErrorIs(t, lease.Once(t.Context(), nil, s.done, notCalled), lease.ErrInvalid)
	require.ErrorIs(t, lease.Once(t.Context(), l, nil, notCalled), lease.ErrInvalid)
	require.ErrorIs(t, lease.Once(t.Context(), l, s.done, nil), lease.ErrInvalid)
	require.Zero(t, s.asked)
}

// The answer under the lease is slow, and the lease is lost meanwhile: the answer is old.
func TestOnceDoesNotBeginByAnOldAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		var s schema
		a := start(t, store, "a")
		require.NoError(t, lease.Once(t.Context(), a.lease("migrations"), func(ctx context.Context) (bool, error) {
			is, _ := s.done(ctx)
			if s.asked == 2 {
				a.store.Partition()
				time.Sleep(2 * ttl)
				a.store.Heal()
			}
			return is, nil
		}, func(ctx context.Context, term lease.Term) error {
			require.True(t, term.CheckAlive())
			require.NoError(t, ctx.Err())
			return s.migrate(ctx, term)
		}))
		require.Equal(t, 1, s.runs)
	})
}
