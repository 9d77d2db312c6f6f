package sharding_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

// hangingStore hangs in Load while it is told to, for as long as its context lasts, or
// for longer.
type hangingStore struct {
	sharding.EntityStore
	hang  atomic.Bool
	lists string        // whose names begin so
	deaf  chan struct{} // not nil: until it is closed, whatever the context says
	calls atomic.Int32
	most  atomic.Int32
}

func (h *hangingStore) Load(ctx context.Context, o lease.Ownership) ([]string, error) {
	if !strings.HasPrefix(o.Name(), h.lists) {
		return h.EntityStore.Load(ctx, o)
	}
	if n := h.calls.Add(1); n > h.most.Load() {
		h.most.Store(n)
	}
	defer h.calls.Add(-1)
	switch {
	case h.hang.Load() && h.deaf != nil:
		<-h.deaf
		return nil, errors.New("too late")
	case h.hang.Load():
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.EntityStore.Load(ctx, o)
}

// A store that hangs is told of, and asked again; one that does not even end with its
// context holds nothing up but the entities of its shard, or, if it hangs before
// anything was ever assigned, those of its type.
func TestAStoreThatHangs(t *testing.T) {
	for _, lists := range []string{"shard/", "layout/"} {
		t.Run(lists+" until its context is done", func(t *testing.T) { aStoreThatHangs(t, lists, false) })
		t.Run(lists+" for ever", func(t *testing.T) { aStoreThatHangs(t, lists, true) })
	}
}

func aStoreThatHangs(t *testing.T, lists string, deaf bool) {
	bubble(t, func(c *cluster) {
		store := &hangingStore{EntityStore: sharding.NewMemoryEntities(), lists: lists}
		if deaf {
			store.deaf = make(chan struct{})
		}
		store.hang.Store(true)
		var told atomic.Int32
		n := c.node("a")
		n.counts(sharding.NotRemembered, &told)
		r := n.start(1, sharding.WithRemember(store, 0))
		if lists == "shard/" {
			c.settled(5*time.Second, n)
		}
		require.NoError(t, r.Tell("x", job{"s", 1}))
		time.Sleep(25 * time.Second)
		require.NotZero(t, told.Load(), "nothing is said of a store that hangs")
		require.Zero(t, c.log.total())
		if deaf {
			began := time.Now()
			require.NoError(t, r.Stop(context.Background()))
			require.Less(t, time.Since(began), time.Minute, "it can be stopped")
			require.EqualValues(t, 1, store.most.Load(), "one call at a time")
			close(store.deaf)
			return
		}
		store.hang.Store(false)
		time.Sleep(30 * time.Second)
		c.log.complete("s", "x", 1)
	})
}

// The time that a Stop takes while the store does not answer does not grow with the
// number of shards.
func TestStopWithAFrozenStore(t *testing.T) {
	for _, shards := range []int{4, 64} {
		bubble(t, func(c *cluster) {
			a := c.node("a")
			r := a.start(shards)
			c.settled(time.Minute, a)
			a.store.Partition()
			defer a.store.Heal()
			began := time.Now()
			require.NoError(c.t, r.Stop(c.t.Context()))
			require.Less(c.t, time.Since(began), time.Minute)
		})
	}
}
