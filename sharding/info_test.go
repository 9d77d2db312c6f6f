package sharding_test

import (
	"context"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/placement"
	"github.com/holdfast-go/holdfast/sharding"
)

// While a node is drained its Info says so, that of the coordinator's node which moves are under
// way since when, and where messages wait for a shard they are counted.
func TestInfoOfMoves(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hostingType("a b", sharding.Type{Name: "account", Shards: 8, Props: actor.PropsFromProducer(func() actor.Actor { return slow{} })},
			sharding.WithMoveLimits(placement.MoveLimits{PerHost: 2}))
		had := map[int]bool{}
		for _, s := range ns[1].region.Info().Table {
			had[s.Shard] = s.Owner == "b"
			require.NoError(t, ns[1].region.Tell(idOf(s.Shard, 8), job{"x", 1}))
			require.Zero(t, s.Waiting)
		}
		time.Sleep(time.Second)
		drained, began := make(chan error, 1), time.Now()
		go func() { drained <- ns[1].region.Drain(context.Background()) }()
		time.Sleep(200 * time.Millisecond)
		in := ns[1].region.Info()
		require.True(t, in.Draining)
		require.False(t, ns[0].region.Info().Draining)
		moves := append(in.Moves, ns[0].region.Info().Moves...) // of the one that coordinates
		require.Len(t, moves, 2, "as many as may be")
		for i, m := range moves {
			require.True(t, had[m.Shard])
			require.Equal(t, sharding.MoveInfo{Shard: m.Shard, From: "b", To: "a", Since: m.Since}, m)
			require.WithinDuration(t, began, m.Since, 100*time.Millisecond)
			for range i + 1 {
				require.NoError(t, ns[1].region.Tell(idOf(m.Shard, 8), job{"x", 2}))
			}
			require.Equal(t, i+1, ns[1].region.Info().Table[m.Shard].Waiting)
		}
		require.NoError(t, <-drained)
		require.Greater(t, time.Since(began), time.Second, "one after the other")
		time.Sleep(time.Second)
		for _, n := range ns {
			in := n.region.Info()
			require.Empty(t, in.Moves)
			require.Zero(t, in.Waiting)
			for _, s := range in.Table {
				require.Equal(t, "a", s.Owner)
				require.Zero(t, s.Waiting)
			}
		}
		ns[1].region.Undrain()
		time.Sleep(time.Second)
		require.False(t, ns[1].region.Info().Draining)
	})
}
