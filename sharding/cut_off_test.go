package sharding_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// A node that is cut off from the store loses its shards, and does not learn of their next hosts by the
// records. What waits there, and what it sends, goes to these by the word of other members. A node that
// is no member gets none of it, whatever it answers.
func TestANodeThatIsCutOffFromTheStoreHandsItsMailOn(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 12)
		a, x := ns[0], c.nodeAt("x", "x:1")
		self := &wire.Node{Address: "x:1", Incarnation: x.keeper.Owner().Incarnation}
		f := c.traffic(50*time.Millisecond, ns...)
		time.Sleep(time.Second)
		a.store.Partition()
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			for shard := range 12 {
				for guess := range uint64(4) {
					x.system.Root.Send(processAt("a:1"), &wire.MarkerAck{Name: fmt.Sprintf("shard/g/account/%d", shard), From: self,
						Number: guess<<32 | guess, Token: 1 << 40})
				}
			}
		}
		f.end()
		require.Zero(t, a.region.Info().Waiting)
		got, _ := c.net.Wire("a:1", "x:1")
		require.Zero(t, got, "messages for a node that is no member")
		a.store.Heal()
		c.settled(20*time.Second, ns...)
	})
}
