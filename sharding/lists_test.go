package sharding_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
)

// lists is a store that lists, and can neither transfer nor watch.
type lists struct{ store.Store }

// overLists runs a test whose nodes are on such a store.
func overLists(t *testing.T, f func(c *cluster)) {
	t.Helper()
	bubble(t, func(c *cluster) {
		c.front = lists{c.store}
		f(c)
	})
}

// Over a store that can't transfer, a shard that is to move is released, and taken by the node
// that was to have it: no other has it meanwhile. Mail comes once; its order is kept only while
// the moves are heard of in time, which a store that does not tell of changes can't promise.
func TestShardsMoveWithoutTransfers(t *testing.T) {
	overLists(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		for _, n := range ns {
			n.start(12)
		}
		c.settled(20*time.Second, ns...)
		d := c.node("d")
		var hosted atomic.Int32
		for _, n := range append(ns, d) {
			n.counts(sharding.Hosted, &hosted)
		}
		f := c.traffic(20*time.Millisecond, ns[1])
		d.start(12)
		ns = append(ns, d)
		c.settled(10*time.Second, ns...)
		require.EqualValues(t, 4, hosted.Load(), "each once, by the node that joined")
		time.Sleep(ttl)
		require.EqualValues(t, 4, hosted.Load())
		c.settled(0, ns...)

		began := time.Now()
		require.NoError(t, ns[0].region.Stop(context.Background()))
		require.Less(t, time.Since(began), 5*time.Second, "its shards are moved, not left to the end")
		require.NoError(t, ns[0].group.Leave(context.Background()))
		c.settled(10*time.Second, ns[1:]...)
		f.endWith(func(sender, id string, n int) {
			got := c.log.of(sender, id)
			slices.Sort(got)
			require.Len(t, got, n, "%s to %s", sender, id)
			require.Len(t, slices.Compact(got), n, "%s to %s: each once", sender, id)
		})
	})
}
