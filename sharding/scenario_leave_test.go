package sharding_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

// 10: with the coordinator away, traffic goes on; the next one is in charge soon.
func TestScenario10TheCoordinatorsNodeLeaves(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 30)
		ns = coordinatorFirst(ns)
		require.Equal(t, ns[0].id, ns[1].region.Info().Coordinator.ID)
		f := c.traffic(20*time.Millisecond, ns[1:]...)
		time.Sleep(time.Second)
		require.NoError(t, ns[0].region.Stop(context.Background()))
		require.NoError(t, ns[0].group.Leave(context.Background()))
		began := time.Now()
		for ns[1].region.Info().Coordinator.ID == ns[0].id || ns[1].region.Info().Coordinator.ID == "" {
			time.Sleep(10 * time.Millisecond)
		}
		require.Less(t, time.Since(began), 2*time.Second)
		c.settled(5*time.Second, ns[1:]...)
		f.end()
		c.whole(ns...)
	})
}

// 10: where another is to coordinate, the lease is transferred: nobody else can have
// it meanwhile.
func TestScenario10TheCoordinatorFollowsTheLeader(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		var leaders []*membership.Static
		for _, n := range ns {
			l := membership.NewStatic(n.keeper.Owner())
			l.Set(ns[0].keeper.Owner())
			leaders = append(leaders, l)
			n.start(30, sharding.WithLeadership(l))
		}
		c.settled(5*time.Second, ns...)
		require.Equal(t, "a", ns[1].region.Info().Coordinator.ID)
		var handed atomic.Int32
		ns[0].system.EventStream.Subscribe(func(evt any) {
			if e, ok := evt.(singleton.Event); ok && e.Kind == singleton.HandedOver {
				handed.Add(1)
			}
		})
		for _, l := range leaders {
			l.Set(ns[1].keeper.Owner())
		}
		time.Sleep(time.Second)
		require.Equal(t, "b", ns[0].region.Info().Coordinator.ID)
		require.EqualValues(t, 1, handed.Load())
		c.whole(ns...)
	})
}

// 11: a rolling restart of all nodes loses nothing.
func TestScenario11ARollingRestart(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b", "c")
		for _, n := range ns {
			n.start(24)
		}
		outside := c.node("out")
		outside.start(24, sharding.WithProxyOnly())
		c.settled(5*time.Second, ns...)
		f := c.traffic(10*time.Millisecond, outside)
		for i, n := range ns {
			require.NoError(t, n.region.Stop(context.Background()))
			require.NoError(t, n.group.Leave(context.Background()))
			require.NoError(t, n.keeper.Close(context.Background()))
			c.net.Kill(n.system.Address())
			ns[i] = c.node(n.id)
			ns[i].start(24)
			c.settled(20*time.Second, ns...)
		}
		f.end()
		c.whole(outside)
		c.whole(ns...)
	})
}

// A program may stop its singletons before its Regions: the coordinator is the
// Region's to end.
func TestScenario11SingletonsAreStoppedFirst(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 24)
		f := c.traffic(10*time.Millisecond, ns[1], ns[2])
		for _, n := range ns { // whichever coordinates
			if n.region.Info().Coordinator.ID != n.id {
				continue
			}
			require.NoError(t, singleton.StopAll(context.Background(), n.system))
			began := time.Now()
			require.NoError(t, n.region.Stop(context.Background()))
			require.Less(t, time.Since(began), 5*time.Second)
			require.Zero(t, n.region.Info().Dropped)
			break
		}
		time.Sleep(time.Second)
		f.end()
		c.whole(ns[1], ns[2])
	})
}
