package sharding_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/sharding"
)

// A shard that ends, slowly, while its remembered entities are being started leaves the node's
// pace to the others.
func TestAShardThatEndsLeavesThePaceToTheOthers(t *testing.T) {
	const ids, pace = 1500, 50
	bubble(t, func(c *cluster) {
		store := sharding.NewMemoryEntities()
		for _, id := range numbered(ids) {
			o := owner{fmt.Sprint("shard/g/account/", sharding.ShardOf(id, 2))}
			require.NoError(t, store.Update(t.Context(), o, []string{id}, nil))
		}
		free := make(chan struct{})
		var began [2]atomic.Int32
		typ := sharding.Type{Name: "account", Shards: 2, Props: actor.PropsFromFunc(func(ctx actor.Context) {
			switch ctx.Message().(type) {
			case *actor.Started:
				e, _ := sharding.Of(ctx)
				began[e.Shard()].Add(1)
			case *actor.Stopping:
				<-free
			}
		})}
		opts := []sharding.Option{sharding.WithRemember(store, pace), sharding.WithSettle(100 * time.Millisecond),
			sharding.WithStop(nil, time.Minute)}
		a, b := c.node("a"), c.node("b")
		a.startType(typ, opts...)
		for began[0].Load() == 0 || began[1].Load() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		b.startType(typ, opts...)
		time.Sleep(3 * time.Second) // one of them ends by now
		before := [2]int32{began[0].Load(), began[1].Load()}
		time.Sleep(4 * time.Second)
		more := max(began[0].Load()-before[0], began[1].Load()-before[1])
		close(free)
		require.Greater(t, int(more), 4*pace*3/4, "entities of the shard that stays, in 4 s")
		require.NoError(t, a.region.Stop(context.Background()))
	})
}
