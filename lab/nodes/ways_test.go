//go:build linux

package nodes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/sqlite"
	"github.com/holdfast-go/holdfast/lease"
)

// A node that is cut off from the file believes for as long as it may, while others go on, and goes
// on with them when that is undone. Where sessions end early, others have its lease meanwhile.
func TestANodeIsCutOffFromTheFile(t *testing.T) {
	for name, over := range map[string]func(*sqlite.Store) lease.Store{
		"sound": func(s *sqlite.Store) lease.Store { return s }, "early": func(s *sqlite.Store) lease.Store { return early{s} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			started, err := overSQLite.Start(ctx, 1)
			require.NoError(t, err)
			defer func() { require.NoError(t, started.Close()) }()
			f := started.(*file)
			mine, end, err := connectSQLiteOver(ctx, f.path, over)
			require.NoError(t, err)
			defer func() { require.NoError(t, end()) }()
			other, err := sqlite.New(ctx, f.path) // it has no way that is cut
			require.NoError(t, err)
			defer func() { require.NoError(t, other.Close()) }()
			a, endA := leaseOf(t, mine.Leases, "a")
			defer endA()
			b, endB := leaseOf(t, over(other), "b")
			defer endB()
			ok, err := a.Acquire(ctx)
			require.NoError(t, err)
			require.True(t, ok)

			_, undo, err := cut(ways(f.path), 1)
			require.NoError(t, err)
			began := time.Now()
			time.Sleep(10 * wayPace) // it is noticed by then
			_, err = mine.Leases.Get(briefly(t), "job")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			_, err = mine.Write(briefly(t), nil, 1, "x")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			_, err = other.Get(ctx, "job")
			require.NoError(t, err)
			both := 0
			var taken time.Duration
			for a.CheckAlive() || taken == 0 {
				require.Less(t, time.Since(began), 5*time.Second)
				if taken == 0 {
					if ok, err := b.Acquire(ctx); err == nil && ok {
						taken = time.Since(began)
					}
				}
				if a.CheckAlive() && b.CheckAlive() {
					both++
				}
				time.Sleep(5 * time.Millisecond)
			}
			t.Logf("taken after %v, both believed %d times", taken, both)
			require.Equal(t, name == "early", both > 0)
			require.NoError(t, undo(ctx))
			require.Eventually(t, func() bool { _, err := mine.Leases.Get(ctx, "job"); return err == nil }, time.Second, time.Millisecond)
			require.NoError(t, a.Release(ctx))
			require.NoError(t, b.Release(ctx))
			ok, err = a.Acquire(ctx)
			require.NoError(t, err)
			require.True(t, ok)
		})
	}
}

func leaseOf(t *testing.T, s lease.Store, id string) (l lease.Lease, end func()) {
	k, err := lease.NewKeeper(s, lease.Config{ID: id, TTL: 2 * time.Second})
	require.NoError(t, err)
	l, err = k.Lease("job")
	require.NoError(t, err)
	return l, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Release(ctx)
		_ = k.Close(ctx)
	}
}

func briefly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}
