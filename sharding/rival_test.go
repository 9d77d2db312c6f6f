package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding"
)

// A node whose ID another one took while it did not answer hands its shards over, loses
// nothing by that, and says why; it takes part again when the other has left.
func TestASupersededNodeHandsItsShardsOver(t *testing.T) {
	bubble(t, func(c *cluster) {
		one, two, three := c.nodeAt("a", "one:1"), c.nodeAt("a", "two:1"), c.nodeAt("b", "three:1")
		var told atomic.Int32
		one.system.EventStream.Subscribe(func(e any) {
			if e, ok := e.(sharding.Event); ok && e.Kind == sharding.Superseded && errors.Is(e.Reason, membership.ErrIDInUse) {
				told.Add(1)
			}
		})
		one.join()
		one.start(8)
		c.settled(5*time.Second, one)
		require.NoError(t, one.region.Health(t.Context()))
		one.store.Partition()
		two.join()
		one.store.Heal()
		two.start(8)
		three.join()
		three.start(8)
		for k := range 200 {
			for i, n := range []*node{one, two, three} {
				require.NoError(t, n.region.Tell(fmt.Sprint("id", k%20), job{fmt.Sprint(i, "-", k%20), k/20 + 1}))
			}
			time.Sleep(100 * time.Millisecond)
		}
		c.settled(0, two, three)
		require.Zero(t, one.region.Info().Held)
		require.EqualValues(t, 8, one.region.Info().HandedOff, "handed over, not released")
		synctest.Wait()
		require.EqualValues(t, 1, told.Load())
		require.ErrorIs(t, one.region.Health(t.Context()), membership.ErrIDInUse)
		require.NoError(t, two.region.Health(t.Context()))
		for i := range 3 {
			for id := range 20 {
				c.log.complete(fmt.Sprint(i, "-", id), fmt.Sprint("id", id), 10)
			}
		}
		c.log.check()

		require.NoError(t, two.region.Stop(context.Background()))
		require.ErrorIs(t, two.region.Health(t.Context()), sharding.ErrClosed)
		require.NoError(t, two.group.Leave(context.Background()))
		time.Sleep(10 * time.Second)
		require.NoError(t, one.region.Health(t.Context()))
		c.settled(0, one, three)
	})
}

// A node that is refused for its ID disturbs the one that has it by nothing.
func TestARefusedIDMovesNothing(t *testing.T) {
	bubble(t, func(c *cluster) {
		one, two, three := c.nodeAt("a", "one:1"), c.nodeAt("a", "two:1"), c.nodeAt("b", "three:1")
		for _, n := range []*node{one, three} {
			n.join()
			n.start(8)
		}
		c.settled(10*time.Second, one, three)
		time.Sleep(time.Second)
		moved := one.region.Info().HandedOff + three.region.Info().HandedOff
		for range 5 {
			_, err := membership.Join(context.Background(), two.keeper, "g")
			require.ErrorIs(t, err, membership.ErrIDInUse)
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		c.settled(0, one, three)
		require.Equal(t, moved, one.region.Info().HandedOff+three.region.Info().HandedOff)
	})
}

// Health fails on every node while no shard has a host: none hosts the type, or all are drained.
func TestHealthOfATypeThatNobodyHosts(t *testing.T) {
	bubble(t, func(c *cluster) {
		p, a := c.node("p"), c.node("a")
		p.start(8, sharding.WithProxyOnly())
		time.Sleep(time.Minute)
		require.ErrorContains(t, p.region.Health(t.Context()), "no shard has had a host")
		a.start(8)
		c.settled(5*time.Second, a)
		for _, n := range []*node{p, a} {
			require.NoError(t, n.region.Health(t.Context()))
		}
		require.NoError(t, a.region.Drain(context.Background()))
		time.Sleep(11 * time.Second)
		for _, n := range []*node{p, a} {
			require.ErrorContains(t, n.region.Health(t.Context()), "no shard has had a host")
		}
		a.region.Undrain()
		time.Sleep(10 * time.Second)
		require.NoError(t, p.region.Health(t.Context()))
	})
}
