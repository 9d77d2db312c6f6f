package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/remembertest"
	"github.com/holdfast-go/holdfast/store"
)

// owned is an ownership made up.
type owned struct {
	name  string
	token lease.Token
}

func (o owned) Name() string       { return o.name }
func (o owned) Token() lease.Token { return o.token }

func TestMemoryEntitiesConformance(t *testing.T) {
	remembertest.Run(t, func(*testing.T) (sharding.EntityStore, func(string) lease.Ownership) {
		tokens := map[string]lease.Token{}
		return sharding.NewMemoryEntities(), func(name string) lease.Ownership {
			tokens[name] += 2
			return owned{name, tokens[name]}
		}
	})
}

func TestValidateEntityID(t *testing.T) {
	for _, id := range []string{"a", "a/b", "%", "ü", "\x00", strings.Repeat("x", sharding.MaxEntityID)} {
		require.NoError(t, sharding.ValidateEntityID(id), "%q", id)
	}
	for _, id := range []string{"", "\xff", strings.Repeat("x", sharding.MaxEntityID+1)} {
		require.ErrorIs(t, sharding.ValidateEntityID(id), lease.ErrInvalid, "%q", id)
	}
}

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
