package node_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/singleton"
)

// TestAStartThatFailsLeavesTheSystemAlone: the singletons of a System that was given are
// not its own.
func TestAStartThatFailsLeavesTheSystemAlone(t *testing.T) {
	store := memory.New()
	n := start(t, "a", store)
	cron, err := n.Singleton("cron", adders())
	require.NoError(t, err)
	ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, cron, Add{1}) })
	for says, cfg := range map[string]node.Config{
		"has the address": {ID: "b", Store: store, System: n.System(), Listen: "127.0.0.1:0", Plaintext: true},
		"HTTP":            {ID: "b", Store: store, System: n.System(), Remoting: n.Remoting(), HTTP: "256.0.0.1:0"},
	} {
		_, err = node.Start(t.Context(), cfg)
		require.ErrorContains(t, err, says)
	}
	require.Equal(t, Sum{2}, ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, cron, Add{1}) }), "the same child")
	stop(t, n)
}
