package sharding_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding"
)

// The manager of the coordinator forwards nobody's mail: a node that had the coordinator ends as
// soon as its shards have moved.
func TestANodeThatHadTheCoordinatorEndsAtOnce(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		var leaders []*membership.Static
		for _, n := range ns {
			l := membership.NewStatic(n.keeper.Owner())
			l.Set(ns[0].keeper.Owner())
			leaders = append(leaders, l)
			n.start(4, sharding.WithLeadership(l))
		}
		c.settled(10*time.Second, ns...)
		time.Sleep(10 * time.Second)
		require.Equal(t, "a", ns[1].region.Info().Coordinator.ID)
		for _, l := range leaders {
			l.Set(ns[1].keeper.Owner())
		}
		for ns[0].region.Info().Coordinator.ID != "b" {
			time.Sleep(10 * time.Millisecond)
		}
		began := time.Now()
		require.NoError(t, ns[0].region.Stop(context.Background()))
		require.Less(t, time.Since(began), handover.QuietPeriod)
	})
}
