//go:build unix

package node_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func raise(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(os.Getpid(), s))
}

func TestASignalEndsRun(t *testing.T) {
	n := start(t, "a", memory.New())
	must(n.Singleton("cron", adders()))(t)
	go raise(t, syscall.SIGTERM)
	require.NoError(t, n.Run(t.Context()))
	require.ErrorContains(t, n.Health(t.Context()), "terminated")
}

// TestASignalThatComesDuringStart ends it, and what waits for the group.
func TestASignalThatComesDuringStart(t *testing.T) {
	store := faultstore.Wrap(memory.New())
	store.Partition()
	timer := time.AfterFunc(300*time.Millisecond, func() { raise(t, syscall.SIGTERM) })
	defer timer.Stop()
	began := time.Now()
	_, err := node.Start(t.Context(), node.Config{ID: "a", Store: store, Group: "bank",
		StopWithin: time.Second / 2, Logger: zap.NewNop()})
	require.ErrorIs(t, err, node.ErrStopped)
	require.ErrorContains(t, err, "terminated")
	require.Less(t, time.Since(began), soon)

	n := start(t, "b", store)
	started := make(chan error, 1)
	go func() { _, err := n.Sharded("account", adders()); started <- err }()
	time.Sleep(50 * time.Millisecond)
	raise(t, syscall.SIGTERM)
	require.ErrorIs(t, <-started, node.ErrStopped)
	_ = n.Run(t.Context()) // the store has something to say
	require.True(t, n.System().IsStopped())
}
