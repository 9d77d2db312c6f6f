//go:build !race

// Each start of protoactor's remote sets the logger of gRPC for the whole process, while
// the remotes that run read it.

package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store/faultclock"
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

// A node's clock is compared with that of the other while it runs.
func TestClocksOfTwoNodes(t *testing.T) {
	reader, ahead := sdkmetric.NewManualReader(), faultclock.New()
	ahead.StepWall(5 * time.Second)
	store := memory.New()
	a := start(t, "a", store, func(c *node.Config) {
		c.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	})
	b := start(t, "b", store, func(c *node.Config) { c.Lease.Clock = ahead })
	offset := func() (values []float64) {
		var all metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &all))
		for _, s := range all.ScopeMetrics {
			if s.Scope.Name == "github.com/holdfast-go/holdfast/node" {
				values = append(values, s.Metrics[0].Data.(metricdata.Gauge[float64]).DataPoints[0].Value)
			}
		}
		return values
	}
	require.Eventually(t, func() bool { return a.Group() != nil && len(a.Group().Members().Members) == 2 }, soon, 10*time.Millisecond)
	_, err := inquiry.Of(a.System()).Ask(t.Context(), b.System().Address(), inquiry.Request{}) // they are linked
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(offset()) == 1 }, 4*soon, 10*time.Millisecond, "if the first does not succeed the second does, in a minute")
	require.InDelta(t, -2.5, offset()[0], 0.5, "half of the difference, and half of half of the 2 s that an answer may take")
	stop(t, a)
	require.Eventually(t, func() bool { return len(offset()) == 0 }, soon, 10*time.Millisecond)
}
