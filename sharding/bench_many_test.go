package sharding_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/sharding"
)

var manyShards = flag.Int("sharding.shards", 5000, "shards of BenchmarkJoinAndLeave, on three nodes and then four")

// BenchmarkJoinAndLeave says how long a fourth node takes to have its part of very many
// shards, and to hand it over: in seconds, and in microseconds for each shard that moved.
// -sharding.shards=20000 makes it twenty thousand.
func BenchmarkJoinAndLeave(b *testing.B) {
	b.ReportAllocs()
	shards := *manyShards
	var joins, leaves time.Duration
	for range b.N {
		c := &cluster{t: b, store: memory.New(), net: memnet.New()}
		c.log.t = b
		part := func(n *node, least int) {
			for began := time.Now(); n.region.Info().Held < least; time.Sleep(10 * time.Millisecond) {
				require.Less(b, time.Since(began), 5*time.Minute)
			}
		}
		ns := c.nodes("a", "b", "c")
		for _, n := range ns {
			n.start(shards, sharding.WithSettle(100*time.Millisecond))
		}
		for _, n := range ns {
			part(n, shards/3)
		}
		late := c.node("d")
		b.StartTimer()
		began := time.Now()
		late.start(shards, sharding.WithSettle(100*time.Millisecond))
		part(late, shards/4)
		joins += time.Since(began)
		began = time.Now()
		require.NoError(b, late.region.Drain(context.Background()))
		leaves += time.Since(began)
		b.StopTimer()
		c.cleanUp()
	}
	moved := float64(shards/4) * float64(b.N)
	b.ReportMetric(joins.Seconds()/float64(b.N), "s/join")
	b.ReportMetric(leaves.Seconds()/float64(b.N), "s/leave")
	b.ReportMetric(float64(joins.Microseconds())/moved, "µs/joined")
	b.ReportMetric(float64(leaves.Microseconds())/moved, "µs/left")
}
