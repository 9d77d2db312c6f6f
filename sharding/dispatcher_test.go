package sharding_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/sharding"
)

// pool is a dispatcher of a user's, which does as it is told.
type pool struct {
	actor.Dispatcher
	behave func(run func())
}

func (p *pool) Schedule(run func()) { p.behave(run) }

// startPool runs entities on a dispatcher.
func (n *node) startPool(shards int, receive actor.ReceiveFunc, behave func(run func())) {
	n.startType(sharding.Type{Name: "account", Shards: shards, Props: actor.PropsFromFunc(receive,
		actor.WithDispatcher(&pool{actor.NewDefaultDispatcher(300), behave}))})
}

func answerJobs(ctx actor.Context) {
	if j, ok := jobOf(ctx.Message()); ok && ctx.Sender() != nil {
		ctx.Respond(done{Number: j.Number})
	}
}

// A pool that is closed under its entities holds nobody up: neither who sends, here or on
// another node, nor the rest of the shard, nor Stop.
func TestADispatcherThatPanics(t *testing.T) {
	bubble(t, func(c *cluster) {
		a, b := c.node("a"), c.node("b")
		var bad atomic.Bool
		a.startPool(1, answerJobs, func(run func()) {
			if bad.Load() {
				panic("the pool is closed")
			}
			go run()
		})
		c.settled(5*time.Second, a)
		b.startType(sharding.Type{Name: "account", Shards: 1})
		for i := range 4 {
			_, err := ask(a, fmt.Sprint(i), 1)
			require.NoError(t, err)
		}
		bad.Store(true)
		for i := range 8 { // the last four begin
			for _, n := range []*node{a, b} {
				began := time.Now()
				require.NotPanics(t, func() { require.NoError(t, n.region.Tell(fmt.Sprint(i), job{Number: 2})) })
				_, err := ask(n, fmt.Sprint(i), 3)
				require.NoError(t, err)
				require.Less(t, time.Since(began), 5*time.Second)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, a.region.Stop(ctx))
	})
}

// A pool has its users wait for a free worker; a handler that tells an entity which is to be
// started is not among them.
func TestADispatcherThatWaits(t *testing.T) {
	bubble(t, func(c *cluster) {
		a := c.node("a")
		workers := make(chan struct{}, 2)
		var handled atomic.Int32
		a.startPool(1, func(ctx actor.Context) {
			answerJobs(ctx)
			if j, ok := jobOf(ctx.Message()); ok && ctx.Sender() == nil {
				time.Sleep(20 * time.Millisecond)
				if j.Number < 100 {
					_ = a.region.Tell(fmt.Sprintf("new-%d", j.Number), job{Number: 100 + j.Number})
				}
				handled.Add(1)
			}
		}, func(run func()) {
			workers <- struct{}{}
			go func() { defer func() { <-workers }(); run() }()
		})
		c.settled(5*time.Second, a)
		for i := range 16 {
			_, err := ask(a, fmt.Sprint(i), 1)
			require.NoError(t, err)
		}
		for i := range 16 {
			go func() { _ = a.region.Tell(fmt.Sprint(i), job{Number: i}) }()
		}
		time.Sleep(5 * time.Second)
		require.EqualValues(t, 32, handled.Load())
	})
}
