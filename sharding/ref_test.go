package sharding_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/sharding"
)

// What an entity of a Region that has ended keeps of itself does not take the Refs of the
// next Region of the type.
func TestAnEntityOfAnEarlierRegionTakesNoRefs(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		var self atomic.Pointer[sharding.Entity]
		start := func() {
			n.startType(sharding.Type{Name: "account", Shards: 4, Props: actor.PropsFromFunc(func(ctx actor.Context) {
				if j, ok := jobOf(ctx.Message()); ok {
					e, _ := sharding.Of(ctx)
					self.Store(e)
					ctx.Respond(done{Number: j.Number})
				}
			})})
			c.settled(5*time.Second, n)
		}
		start()
		_, err := ask(n, "x", 1)
		require.NoError(t, err)
		earlier := self.Load()
		require.NoError(t, n.region.Stop(context.Background()))
		name := earlier.Ref().Id
		_, left := n.system.ProcessRegistry.GetLocal(name)
		require.False(t, left, "nobody would take it away")

		start()
		_, err = n.region.Ref("x")
		require.NoError(t, err)
		require.Equal(t, name, earlier.Ref().Id)
		answer, err := n.system.Root.RequestFuture(actor.NewPID(n.system.Address(), name), job{"s", 2}, time.Second).Result()
		require.NoError(t, err)
		require.Equal(t, done{Number: 2}, answer)
	})
}
