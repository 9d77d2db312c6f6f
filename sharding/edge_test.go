package sharding_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/sharding"
)

// These are the edges: what entities, strategies and callers do at odd moments.

// What an entity forgets while its shard is on the move is forgotten.
func TestForgetWhileTheShardMoves(t *testing.T) {
	bubble(t, func(c *cluster) {
		store := sharding.NewMemoryEntities()
		var lives atomic.Int32
		ns := c.nodes("a", "b")
		type farewell struct{}
		props := actor.PropsFromProducer(func() actor.Actor {
			g := &guest{lives: &lives}
			return actor.ReceiveFunc(func(ctx actor.Context) {
				g.Receive(ctx)
				if _, ok := ctx.Message().(farewell); ok {
					g.self.Forget()
					ctx.Stop(ctx.Self())
				}
			})
		})
		c.startAllType(ns, sharding.Type{Name: "account", Shards: 4, Props: props}, sharding.WithRemember(store, 0),
			sharding.WithStop(func() any { return farewell{} }, time.Second))
		for i := range 4 {
			askInt(t, time.Second, ns[0].region, idOf(i, 4))
		}
		require.NoError(t, ns[0].region.Drain(context.Background()))
		time.Sleep(2 * time.Second)
		require.Equal(t, 2, ns[1].region.Info().Entities, "those that did not move")
		require.EqualValues(t, 4, lives.Load())
	})
}

// A store that is away holds a shard up by the deadline and no longer; what was to
// be forgotten then is not.
func TestForgetWithoutTheStoreEndsByTheDeadline(t *testing.T) {
	bubble(t, func(c *cluster) {
		store := &failing{EntityStore: sharding.NewMemoryEntities()}
		var lives atomic.Int32
		ns := c.hostingType("a b", sharding.Type{Name: "account", Shards: 2, Props: guests(&lives)}, sharding.WithRemember(store, 0),
			sharding.WithStop(nil, 2*time.Second))
		mine := idOf(slices.Index(owners(ns[0]), "a"), 2)
		askInt(t, time.Second, ns[0].region, mine)
		store.set(true)
		require.NoError(t, ns[0].region.Tell(mine, forget{}))
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, ns[0].region.Drain(context.Background()))
		require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
		require.Less(t, time.Since(began), 3*time.Second)
		store.set(false)
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, ns[1].region.Info().Entities)
	})
}

// Undrain ends a Drain that waits.
func TestUndrainEndsADrainThatWaits(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		for _, n := range ns {
			n.start(8, sharding.WithStop(func() any { return goAway{} }, 30*time.Second)) // nobody heeds it
		}
		c.settled(5*time.Second, ns...)
		ns[0].reaches(8, 1)
		result := make(chan error, 1)
		go func() { result <- ns[0].region.Drain(context.Background()) }()
		time.Sleep(time.Second)
		ns[0].region.Undrain()
		select {
		case err := <-result:
			require.ErrorIs(t, err, sharding.ErrUndrained)
		case <-time.After(time.Second):
			require.Fail(t, "Drain waits on")
		}
		c.settled(2*time.Minute, ns...)
		c.log.check()
	})
}
