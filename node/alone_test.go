//go:build !race

package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

// TestOneOfTwoHasNoAddress: an ask that goes nowhere says so.
func TestOneOfTwoHasNoAddress(t *testing.T) {
	alone := func(c *node.Config) { c.Listen, c.Plaintext = "", false }
	for says, changes := range map[string][2]func(*node.Config){
		`this node has no address and exchanges nothing with the host "host"`: {func(*node.Config) {}, alone},
		`the host "host" has no address`:                                      {alone, func(*node.Config) {}},
	} {
		store := memory.New()
		parts := func(id string, change func(*node.Config)) (*singleton.Manager, *sharding.Region) {
			n := start(t, id, store, change)
			cron := must(n.Singleton("cron", adders()))(t)
			accounts, err := n.ShardedType(sharding.Type{Name: "account", Props: adders(), Shards: 1})
			require.NoError(t, err)
			return cron, accounts
		}
		cron, accounts := parts("host", changes[0])
		ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, cron, Add{1}) })
		ask(t, func(ctx context.Context) (Sum, error) { return sharding.Ask[Sum](ctx, accounts, "a", Add{1}) })
		cron, accounts = parts("asker", changes[1])
		require.Eventually(t, func() bool { return cron.Status().Host.ID == "host" }, soon, 10*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := singleton.Ask[Sum](ctx, cron, Add{1})
		require.ErrorContains(t, err, says)
		ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err = sharding.Ask[Sum](ctx, accounts, "a", Add{1})
		require.ErrorContains(t, err, says)
	}
}
