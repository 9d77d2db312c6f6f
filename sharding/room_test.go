package sharding_test

import (
	"context"
	"fmt"
	"testing"
	"time"

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
		for i := range 12 {
			require.NoError(t, n.region.Tell(fmt.Sprint("id", i), job{n.id, 1}))
		}
		require.Equal(t, 10, n.region.Info().Waiting)
		require.Equal(t, int64(2), n.region.Info().Dropped)
		time.Sleep(time.Minute)
		for i := range 10 {
			c.log.complete(n.id, fmt.Sprint("id", i), 1)
		}
		require.Equal(t, int64(2), n.region.Info().Dropped)
		require.Zero(t, n.region.Info().Waiting)
		_, err := sharding.Ask[done](context.Background(), n.region, "another", job{"ask", 1})
		require.NoError(t, err)
	})
}
