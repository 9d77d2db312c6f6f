//go:build unix

package redis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/redis/redistest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/provider"
	"github.com/holdfast-go/holdfast/lease/runlock"
)

// TestRunLocksAndAProvider: what is built on leases, once. Singletons and shards run over Redis in the
// laboratory (lab run torture -store redis).
func TestRunLocksAndAProvider(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t).Client(t), prefix())
	locks := func(id string) *runlock.Locks {
		k := must(lease.NewKeeper(s, lease.Config{ID: id, Logger: zap.NewNop()}))(t)
		t.Cleanup(func() { require.NoError(t, k.Close(t.Context())) })
		return must(runlock.New(k))(t)
	}
	a, b := locks("a"), locks("b")
	lock := must(a.Try(t.Context(), "workflow", "1"))(t)
	_, err := b.Try(t.Context(), "workflow", "1")
	var held *lease.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, "a", held.Record.Owner.ID)
	require.NoError(t, lock.Close(t.Context()))
	require.NoError(t, must(b.Try(t.Context(), "workflow", "1"))(t).Close(t.Context()))

	p, q := must(provider.New(s))(t), must(provider.New(s))(t)
	require.True(t, must(p.Acquire(t.Context(), "order/1", "x", time.Minute))(t).Acquired)
	got := must(q.Acquire(t.Context(), "order/1", "y", time.Minute))(t)
	require.False(t, got.Acquired)
	require.Equal(t, "x", got.Owner)
	require.NoError(t, p.Release(t.Context(), "order/1", "x"))
	require.True(t, must(q.Acquire(t.Context(), "order/1", "y", time.Minute))(t).Acquired)
}
