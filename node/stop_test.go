package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// TestStopNamesWhatWasNotReleased: the store has frozen, so the leases stay for a TTL.
func TestStopNamesWhatWasNotReleased(t *testing.T) {
	store := faultstore.Wrap(memory.New())
	n := start(t, "a", store)
	cron := must(n.Singleton("cron", adders()))(t)
	ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, cron, Add{1}) })
	store.Partition()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := n.Stop(ctx)
	require.Less(t, time.Since(began), soon)
	require.ErrorContains(t, err, "singleton/cron")
	require.ErrorContains(t, err, "stopping keeper")
	require.True(t, n.System().IsStopped(), "a step that failed kept the later ones from being done")
	requireNobodyListens(t, n.System().Address())
	require.Equal(t, err.Error(), n.Stop(t.Context()).Error(), "a later call returns the same")
}

// TestRunEndsWithItsContext: what Run returns is what Stop did.
func TestRunEndsWithItsContext(t *testing.T) {
	n := start(t, "a", memory.New())
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- n.Run(ctx) }()
	select {
	case err := <-ran:
		require.Fail(t, "it ran", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	require.NoError(t, <-ran)
	require.True(t, n.System().IsStopped())
}

func TestTheEndOfTheActorSystem(t *testing.T) {
	n := start(t, "a", memory.New(), func(c *node.Config) { c.Listen, c.Plaintext = "", false })
	n.System().Shutdown()
	require.NoError(t, n.Run(t.Context()))
}
