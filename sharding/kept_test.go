package sharding_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/sharding"
)

// bulky is an entity with something to keep.
type bulky [1 << 10]byte

// Receive implements actor.Actor.
func (b *bulky) Receive(actor.Context) {}

// Entities that were stopped are no longer in memory, however many ran at once.
func TestNothingKeepsStoppedEntities(t *testing.T) {
	bubble(t, func(c *cluster) {
		var mu sync.Mutex
		var made []weak.Pointer[bulky]
		n := c.node("a")
		r := n.startType(sharding.Type{Name: "account", Shards: 4, Props: actor.PropsFromProducer(func() actor.Actor {
			mu.Lock()
			defer mu.Unlock()
			b := new(bulky)
			made = append(made, weak.Make(b))
			return b
		})}, sharding.WithPassivation(time.Second))
		inMemory := func() (n int) {
			runtime.GC()
			runtime.GC()
			mu.Lock()
			defer mu.Unlock()
			for _, p := range made {
				if p.Value() != nil {
					n++
				}
			}
			return n
		}
		time.Sleep(5 * time.Second)
		for i := range 200 {
			require.NoError(t, r.Tell(fmt.Sprint("id", i), job{"x", 1}))
		}
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, 200, r.Info().Entities)
		require.Equal(t, 200, inMemory())
		time.Sleep(30 * time.Second) // timers of theirs have run out, too
		require.Zero(t, r.Info().Entities)
		require.Zero(t, inMemory())
	})
}

// A Ref keeps the name of its id until its Region ends, and no more: ids may be many.
func TestARefKeepsItsName(t *testing.T) {
	c := &cluster{t: t, store: memory.New(), net: memnet.New()}
	defer c.cleanUp()
	n := c.node("a")
	r := n.startType(sharding.Type{Name: "account", Shards: 4, Props: actor.PropsFromProducer(func() actor.Actor { return new(bulky) })})
	ids := 200_000
	if tier.Racing {
		ids = 100_000
	}
	before := heap()
	for range 2 {
		for i := range ids {
			_, err := r.Ref(fmt.Sprint("id", i))
			require.NoError(t, err)
		}
	}
	require.Less(t, (int64(heap())-int64(before))/int64(ids), int64(200), "bytes for each id")
	require.NoError(t, r.Stop(t.Context()))
	require.Less(t, (int64(heap())-int64(before))/int64(ids), int64(100), "bytes for each id, once the Region has ended")
}
