package sharding_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding"
)

// The coordinator follows the leader over a store that can't transfer, too.
func TestTheCoordinatorFollowsTheLeaderWithoutTransfers(t *testing.T) {
	overLists(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		var leaders []*membership.Static
		lead := func(i int) {
			for _, l := range leaders {
				l.Set(ns[i].keeper.Owner())
			}
		}
		for _, n := range ns {
			leaders = append(leaders, membership.NewStatic(n.keeper.Owner()))
		}
		lead(0)
		for i, n := range ns {
			n.start(12, sharding.WithLeadership(leaders[i]))
		}
		c.settled(20*time.Second, ns...)
		f := c.traffic(100*time.Millisecond, ns...)
		for i := 1; i < 5; i++ {
			lead(i % 2)
			want := ns[i%2].id
			for j := 0; ns[0].region.Info().Coordinator.ID != want || ns[1].region.Info().Coordinator.ID != want; j++ {
				require.Less(t, j, 300, "%s does not coordinate", want)
				time.Sleep(100 * time.Millisecond)
			}
			c.settled(0, ns...)
		}
		f.end()
		c.whole(ns...)
	})
}
