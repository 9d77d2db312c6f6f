package sharding_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/sharding"
)

// A message that names another shard than its entity's is refused: the entity would
// run twice, under two leases.
func TestAnEntityRunsUnderItsOwnShardOnly(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.nodes("a")[0]
		n.start(4)
		c.settled(5*time.Second, n)
		require.NoError(t, n.region.Tell("someone", job{n.id, 1}))
		time.Sleep(time.Second)
		typ, codec, payload, err := wire.Default.Encode(job{"stray", 1}, 1000)
		require.NoError(t, err)
		for i := range 4 {
			n.system.Root.Send(processAt("a:1"), &wire.Envelope{Name: fmt.Sprintf("shard/g/account/%d", i),
				Key: "someone", Type: typ, Codec: codec, Payload: payload})
		}
		time.Sleep(time.Second)
		in := n.region.Info()
		require.Equal(t, int64(3), in.Undeliverable)
		require.Equal(t, 1, in.Entities)
		require.Equal(t, 1, in.Table[sharding.ShardOf("someone", 4)].Entities)
		c.log.complete(n.id, "someone", 1)
		c.log.complete("stray", "someone", 1)
	})
}
