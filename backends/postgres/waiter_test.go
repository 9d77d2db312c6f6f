//go:build unix

package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/lease"
)

// TestWaiterBehindAGuard: who waits for a lease whose holder is gone is told after the last
// transaction that guards it has ended, and not before. Until then the Store looks again, often at
// first, and as seldom as where nothing is guarded if the transaction hangs.
func TestWaiterBehindAGuard(t *testing.T) {
	t.Parallel()
	p, asked := counted(t)
	s := fresh(t, p, postgres.WithPoll(300*time.Millisecond))
	k := must(lease.NewKeeper(s, lease.Config{ID: "waiter", TTL: lasting}))(t)
	defer func() { require.NoError(t, k.Close(context.Background())) }()
	h := must(k.Lease("job"))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	for range 2 {
		holder := session(t, s, "holder")
		tx := guarding(t, s, win(t, s, holder, "job"))
		require.ErrorIs(t, s.CloseSession(ctx, holder), postgres.ErrGuarded)
		waited := make(chan error, 1)
		go func() { waited <- h.Wait(ctx) }()
		began := asked.of("sweep")
		eventually(t, "it has looked once", func() bool { return asked.of("sweep") > began })
		looks, since := asked.of("sweep"), time.Now()
		eventually(t, "it looks again and again", func() bool { return asked.of("sweep") >= looks+7 })
		require.Greater(t, time.Since(since), 1500*time.Millisecond, "in 7 looks") // 50+…+800 ms, then a second each
		require.Empty(t, waited, "it was told that the lease is free while it is guarded")
		require.NoError(t, tx.Commit(ctx))
		require.NoError(t, <-waited)
		won := must(h.Acquire(ctx))(t)
		require.True(t, won)
		require.NoError(t, h.Release(ctx))
	}
}
