package sharding_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
)

// When all nodes stop together, none waits for another to take its shards.
func TestAllNodesStopTogether(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 24)
		began := time.Now()
		var wg sync.WaitGroup
		for _, n := range ns {
			wg.Go(func() { _ = n.region.Stop(context.Background()) })
		}
		wg.Wait()
		require.Less(t, time.Since(began), 5*time.Second)
	})
}

// A node that lost its registration, and finds that the others have agreed on another
// number of shards meanwhile, takes no part.
func TestANodeThatComesBackToAnotherCountStaysOut(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		told := make(chan error, 1000)
		ns[0].system.EventStream.Subscribe(func(e any) {
			if e, ok := e.(sharding.Event); ok && e.Kind == sharding.CountMismatch {
				told <- e.Reason
			}
		})
		ns[0].start(8)
		c.settled(5*time.Second, ns[0])
		ns[0].store.Partition()
		time.Sleep(2 * ttl)
		ns[1].start(16) // nobody else is left
		c.settled(5*time.Second, ns[1])
		ns[0].store.Heal()
		time.Sleep(2 * ttl)
		require.ErrorIs(t, <-told, sharding.ErrShardCount)
		require.Zero(t, ns[0].region.Info().Held)
		for rec, err := range c.store.List(context.Background(), store.Query{Prefix: "region/g/account/a/"}) {
			require.NoError(t, err)
			require.Empty(t, rec, "it is not registered")
		}
		require.Equal(t, 16, ns[1].region.Info().Held)
	})
}

// The metrics count what they say.
func TestMetrics(t *testing.T) {
	bubble(t, func(c *cluster) {
		reads := map[*node]func() map[string]int64{}
		read := func(n *node) map[string]int64 { return reads[n]() }
		ns := c.nodes("a", "b")
		for _, n := range ns {
			var meters metric.MeterProvider
			meters, reads[n] = reader(t)
			n.startType(sharding.Type{Name: "account", Props: guests(new(atomic.Int32)), Shards: 8},
				sharding.WithMeterProvider(meters), sharding.WithBuffer(2, 100, hosting.DropNewest))
		}
		c.settled(5*time.Second, ns...)
		for i := range 8 {
			require.NoError(t, ns[0].region.Tell(idOf(i, 8), job{"x", 1}))
		}
		time.Sleep(time.Second)
		for _, n := range ns {
			require.EqualValues(t, 4, read(n)["hosted"])
			require.EqualValues(t, 4, read(n)["entities"])
		}
		require.NoError(t, ns[0].region.Tell(idOf(0, 8), collapse{}))
		type unregistered struct{}
		for i := range 8 {
			_ = ns[0].region.Tell(idOf(i, 8), unregistered{}) // four are elsewhere
		}
		time.Sleep(time.Second)
		require.EqualValues(t, 4, read(ns[0])["undeliverable"])
		require.Positive(t, read(ns[0])["crashes"]+read(ns[1])["crashes"])
		require.NoError(t, ns[0].region.Drain(context.Background()))
		time.Sleep(time.Second)
		require.EqualValues(t, 4, read(ns[0])["handoff"])
		require.Zero(t, read(ns[0])["hosted"])
		require.EqualValues(t, 8, read(ns[1])["hosted"])
		ns[1].crash()
		time.Sleep(100 * time.Millisecond) // the link is known to be broken
		for range 10 {
			require.NoError(t, ns[0].region.Tell(idOf(0, 8), job{"x", 2}))
		}
		time.Sleep(time.Second)
		require.Positive(t, read(ns[0])["dropped"])
		require.Positive(t, read(ns[0])["waiting"])
	})
}

// A node that leaves goes on forwarding while another does not know yet that it has:
// here one that is cut off from the store.
func TestANodeThatLeavesWaitsUntilOthersKnow(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 12)
		for i := range 12 {
			require.NoError(t, ns[2].region.Tell(idOf(i, 12), job{"c", 1}))
		}
		time.Sleep(time.Second)
		ns[2].store.Partition()
		stopped := make(chan struct{})
		began := time.Now()
		go func() {
			_ = ns[0].region.Stop(context.Background())
			close(stopped)
		}()
		sent := 1
		for open := true; open; sent++ {
			for i := range 12 {
				require.NoError(t, ns[2].region.Tell(idOf(i, 12), job{"c", sent + 1}))
			}
			time.Sleep(100 * time.Millisecond)
			select {
			case <-stopped:
				open = false
			case <-time.After(100 * time.Millisecond):
			}
		}
		took := time.Since(began)
		require.Greater(t, took, 4*time.Second, "as long as it may")
		require.Less(t, took, 8*time.Second)
		ns[2].store.Heal()
		time.Sleep(ttl)
		for i := range 12 { // what was sent when it had gone for good is not
			got := c.log.of("c", idOf(i, 12))
			require.GreaterOrEqual(t, len(got), 20, "in %v", took)
			for k, n := range got {
				require.Equal(t, k+1, n)
			}
		}
	})
}
