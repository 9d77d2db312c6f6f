//go:build unix

package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/lease"
)

// TestWaiterBehindAGuard: who waits for a lease whose holder is gone is told soon after the last
// transaction that guards it has ended, and not before.
func TestWaiterBehindAGuard(t *testing.T) {
	t.Parallel()
	s := fresh(t, pool(t))
	k, err := lease.NewKeeper(s, lease.Config{ID: "waiter", TTL: 10 * time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, k.Close(t.Context())) }()
	h, err := k.Lease("job")
	require.NoError(t, err)
	const rounds = 6
	var took time.Duration
	for round := range rounds {
		holder := session(t, s, "holder", lasting)
		tx := guarding(t, s, win(t, s, holder, "job"))
		require.ErrorIs(t, s.CloseSession(t.Context(), holder), postgres.ErrGuarded)
		waited := make(chan error, 1)
		go func() { waited <- h.Wait(t.Context()) }()
		select {
		case err := <-waited:
			t.Fatalf("it was told that the lease is free while it is guarded: %v", err)
		case <-time.After(time.Second + time.Duration(round)*100*time.Millisecond):
		}
		require.NoError(t, tx.Commit(t.Context()))
		ended := time.Now()
		require.NoError(t, <-waited)
		took += time.Since(ended)
		won, err := h.Acquire(t.Context())
		require.NoError(t, err)
		require.True(t, won)
		require.NoError(t, h.Release(t.Context()))
	}
	t.Logf("told %v after the end, on average", took/rounds)
	require.Less(t, took/rounds, 300*time.Millisecond, "on average")
}
