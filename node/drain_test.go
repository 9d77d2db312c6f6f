//go:build !race

package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/partition"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

// A node that is alone hosts on when it is drained, and says so; with another one it hosts nothing,
// and answers all the same.
func TestDrainANode(t *testing.T) {
	store := memory.New()
	crons := map[string]*singleton.Manager{}
	accounts := map[string]*sharding.Region{}
	add := func(id string) *node.Node {
		n := start(t, id, store)
		crons[id] = must(n.Singleton("cron", adders()))(t)
		accounts[id] = must(n.ShardedType(sharding.Type{Name: "account", Props: adders(), Shards: 8}))(t)
		require.Eventually(t, func() bool { return accounts[id].Info().Held == 8/len(accounts) }, soon, 10*time.Millisecond)
		return n
	}
	works := func(id string) {
		ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, crons[id], Add{1}) })
		ask(t, func(ctx context.Context) (Sum, error) { return sharding.Ask[Sum](ctx, accounts[id], "x", Add{1}) })
	}
	a := add("a")
	works("a")
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	err := a.Drain(ctx)
	require.ErrorContains(t, err, `sharding type "account": no other member hosts it: its shards stay, 8 of them here`)
	require.ErrorContains(t, err, `singleton "cron": no other node is known`)
	works("a")

	b := add("b")
	works("b")
	require.Eventually(t, func() bool { return a.Drain(ctx) == nil }, soon, 100*time.Millisecond)
	require.Zero(t, accounts["a"].Info().Held)
	require.True(t, accounts["a"].Info().Draining)
	require.Eventually(t, func() bool { return crons["b"].Status().Phase == singleton.Active }, soon, time.Millisecond)
	works("a")
	works("b")
	require.NoError(t, a.Undrain())
	require.Eventually(t, func() bool { return accounts["a"].Info().Held == 4 }, soon, 10*time.Millisecond)
	require.False(t, accounts["a"].Info().Draining)
	require.Eventually(t, func() bool { return crons["a"].Status().WhyNot == "" }, soon, 10*time.Millisecond)

	parts := map[*node.Node]*partition.Partitions{}
	for _, n := range []*node.Node{a, b} {
		own := func(ctx context.Context, _ partition.Owned) error { <-ctx.Done(); return nil }
		parts[n] = must(n.Partitions(partition.Config{Name: "orders", Count: 8, Settle: time.Second, Own: own}))(t)
	}
	has := func(n *node.Node, count int) {
		t.Helper()
		require.Eventually(t, func() bool { return len(parts[n].Owned()) == count }, soon, 10*time.Millisecond)
	}
	has(a, 4)
	has(b, 4)
	require.NoError(t, a.Health(ctx))
	require.NoError(t, b.Drain(ctx))
	has(b, 0)
	require.NoError(t, b.Undrain())
	has(b, 4)
	stop(t, a)
	has(b, 8)
	require.ErrorIs(t, a.Drain(ctx), node.ErrStopped)
	require.ErrorIs(t, a.Undrain(), node.ErrStopped)
	require.ErrorIs(t, new(node.Node).Undrain(), lease.ErrInvalid)
}
