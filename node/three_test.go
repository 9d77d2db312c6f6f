//go:build !race

// Each start of protoactor's remote sets the logger of gRPC for the whole process, while
// the remotes that run read it.

package node_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

func TestThreeNodes(t *testing.T) {
	store := memory.New()
	nodes := map[string]*node.Node{}
	crons := map[string]*singleton.Manager{}
	accounts := map[string]*sharding.Region{}
	for _, id := range []string{"a", "b", "c"} {
		n := start(t, id, store)
		var err error
		crons[id] = must(n.Singleton("cron", adders()))(t)
		accounts[id], err = n.ShardedType(sharding.Type{Name: "account", Props: adders(), Shards: 8})
		require.NoError(t, err)
		nodes[id] = n
	}
	for id := range nodes {
		ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, crons[id], Add{1}) })
		for i := range 20 {
			ask(t, func(ctx context.Context) (Sum, error) {
				return sharding.Ask[Sum](ctx, accounts[id], fmt.Sprint("account-", i), Add{1})
			})
		}
	}
	require.Equal(t, Sum{3}, ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, crons["b"], Add{0}) }))
	require.Equal(t, Sum{3}, ask(t, func(ctx context.Context) (Sum, error) {
		return sharding.Ask[Sum](ctx, accounts["c"], "account-7", Add{0})
	}))
	stop(t, nodes["a"])
	_, err := nodes["a"].Singleton("late", adders())
	require.ErrorIs(t, err, node.ErrStopped)
	_, err = nodes["a"].Sharded("late", adders())
	require.ErrorIs(t, err, node.ErrStopped)
	ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, crons["c"], Add{1}) })
	for i := range 20 {
		ask(t, func(ctx context.Context) (Sum, error) {
			return sharding.Ask[Sum](ctx, accounts["b"], fmt.Sprint("account-", i), Add{1})
		})
	}
	stop(t, nodes["b"])
	stop(t, nodes["c"])
}
