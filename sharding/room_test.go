package sharding_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/sharding"
)

// What waited for a shard to open is not dropped on its way to entities that have to
// be started, though as much waits as may.
func TestMailWithinTheBoundIsHandled(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.nodes("a")[0]
		n.start(4, sharding.WithSettle(5*time.Second), sharding.WithBuffer(100, 10, hosting.DropNewest))
		var dead atomic.Int32
		n.system.EventStream.Subscribe(func(e any) {
			if _, ok := e.(*actor.DeadLetterEvent); ok {
				dead.Add(1)
			}
		})
		for i := range 12 {
			require.NoError(t, n.region.Tell(fmt.Sprint("id", i), job{n.id, 1}))
		}
		require.Equal(t, 10, n.region.Info().Waiting)
		require.Equal(t, int64(2), n.region.Info().Dropped)
		_, err := ask(n, "late", 1)
		require.ErrorIs(t, err, hosting.ErrUndeliverable)
		time.Sleep(time.Minute)
		require.EqualValues(t, 3, dead.Load(), "what finds the buffer full")
		for i := range 10 {
			c.log.complete(n.id, fmt.Sprint("id", i), 1)
		}
		require.Equal(t, int64(3), n.region.Info().Dropped)
		require.Zero(t, n.region.Info().Waiting)
		_, err = sharding.Ask[done](context.Background(), n.region, "another", job{"ask", 1})
		require.NoError(t, err)
	})
}
