package sharding_test

import (
	"context"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

// Messages for an entity that does not start overflow at its host, whose subscriber of dead letters
// takes 2 ms for each. An answer that comes behind them over the same link does not wait for that.
func TestAnAskBehindAFloodOfDeadLetters(t *testing.T) {
	bubble(t, func(c *cluster) {
		host, asks := c.node("host"), c.node("asks")
		host.system.EventStream.Subscribe(func(e any) {
			if _, ok := e.(*actor.DeadLetterEvent); ok {
				time.Sleep(2 * time.Millisecond)
			}
		})
		hold := make(chan struct{})
		c.atEnd(func() { close(hold) })
		stuck := actor.PropsFromProducer(func() actor.Actor { <-hold; return &account{n: host} })
		host.startType(sharding.Type{Name: "account", Shards: 1, Props: stuck}, sharding.WithBuffer(100, 1000, hosting.DropNewest))
		c.settled(5*time.Second, host)
		asks.startType(sharding.Type{Name: "account", Shards: 1, Props: stuck}, sharding.WithProxyOnly())
		props := actor.PropsFromFunc(func(ctx actor.Context) {
			if j, ok := jobOf(ctx.Message()); ok {
				ctx.Respond(done{Number: j.Number})
			}
		})
		_, err := singleton.Start(host.system, host.keeper, "other", props)
		require.NoError(t, err)
		time.Sleep(time.Second)
		other, err := singleton.Start(asks.system, asks.keeper, "other", props, singleton.WithProxyOnly())
		require.NoError(t, err)
		c.atEnd(func() {
			require.NoError(t, singleton.StopAll(context.Background(), asks.system))
			require.NoError(t, singleton.StopAll(context.Background(), host.system))
		})
		_, err = singleton.Ask[done](context.Background(), other, job{"a", 1})
		require.NoError(t, err)
		for i := range 5000 {
			require.NoError(t, asks.region.Tell("x", job{"flood", i}))
		}
		began := time.Now()
		_, err = singleton.Ask[done](context.Background(), other, job{"a", 2})
		require.NoError(t, err)
		require.Less(t, time.Since(began), 500*time.Millisecond)
		time.Sleep(time.Second)
		require.EqualValues(t, 5000-100, host.region.Info().Dropped)
	})
}
