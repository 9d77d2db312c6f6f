package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/placement"
	"github.com/holdfast-go/holdfast/store"
)

// slow is an entity that takes its time to stop.
type slow struct{}

func (slow) Receive(ctx actor.Context) {
	if _, ok := ctx.Message().(*actor.Stopping); ok {
		time.Sleep(700 * time.Millisecond)
	}
}

// A node that leaves hands over all it has, however long that takes, as long as it goes
// on.
func TestALeaveLastsAsLongAsItGoesOn(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		for _, n := range ns {
			n.startType(sharding.Type{Name: "account", Shards: 32,
				Props: actor.PropsFromProducer(func() actor.Actor { return slow{} })},
				sharding.WithMoveLimits(placement.MoveLimits{PerHost: 1}))
		}
		c.settled(10*time.Second, ns...)
		for i := range 200 {
			require.NoError(t, ns[0].region.Tell(fmt.Sprint("id", i), job{"x", 1}))
		}
		time.Sleep(time.Second)
		had, began := ns[0].region.Info().HandedOff, time.Now()
		require.NoError(t, ns[0].region.Stop(context.Background()))
		require.Greater(t, time.Since(began), 10*time.Second, "one after the other")
		require.EqualValues(t, 16, ns[0].region.Info().HandedOff-had)
	})
}

// ActorSystem.Shutdown leaves no shard held, without package node too.
func TestARegionEndsWithItsActorSystem(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b", 6)
		ns[0].system.Shutdown()
		c.settled(10*time.Second, ns[1:]...)
		ended := func(n *node) bool { return errors.Is(n.region.Health(context.Background()), sharding.ErrClosed) }
		time.Sleep(10 * time.Second)
		require.True(t, ended(ns[0]))
		ns[1].system.Shutdown()
		time.Sleep(30 * time.Second)
		require.True(t, ended(ns[1]))
		for rec := range c.store.List(context.Background(), store.Query{Prefix: "shard/"}) {
			require.Fail(t, "held", "%+v", rec)
		}
	})
}
