package sharding_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

// tripping is a store of entities that calls trip at one of its Updates, which then
// comes to nothing.
type tripping struct {
	sharding.EntityStore
	mu   sync.Mutex
	at   int // which; 0: none
	trip func()
}

func (s *tripping) Update(ctx context.Context, o lease.Ownership, add, remove []string) error {
	s.mu.Lock()
	trips := s.at == 1
	s.at = max(0, s.at-1)
	s.mu.Unlock()
	if trips {
		s.trip()
		<-ctx.Done()
		return ctx.Err()
	}
	return s.EntityStore.Update(ctx, o, add, remove)
}

// generation starts the type with so many shards on two new nodes.
func (c *cluster) generation(g, shards int, store sharding.EntityStore) []*node {
	ns := c.nodes(fmt.Sprint("a", g), fmt.Sprint("b", g))
	for _, n := range ns {
		n.start(shards, sharding.WithRemember(store, 0))
	}
	return ns
}

// over ends a generation.
func (c *cluster) over(ns []*node) {
	for _, n := range ns {
		require.NoError(c.t, n.region.Stop(context.Background()))
		require.NoError(c.t, n.group.Leave(context.Background()))
	}
}

// runs waits until exactly the entities of these ids run, each once.
func (c *cluster) runs(within time.Duration, ids ...string) {
	c.t.Helper()
	var live []string
	for range int(within / (100 * time.Millisecond)) {
		time.Sleep(100 * time.Millisecond)
		c.log.mu.Lock()
		live = nil
		for id := range c.log.live {
			live = append(live, id)
		}
		c.log.mu.Unlock()
		if len(live) == len(ids) {
			break
		}
	}
	time.Sleep(2 * time.Second) // nobody else comes
	require.ElementsMatch(c.t, ids, live)
	c.log.check()
}

// After the number of shards was changed every remembered entity runs again, once.
func TestRememberedEntitiesOutliveAChangeOfTheNumber(t *testing.T) {
	for _, change := range tier.Sample([][]int{{8, 32}, {16, 2}, {8, 32, 5}, {8, 3, 8}, {1, 256, 1}}) {
		t.Run(fmt.Sprint(change), func(t *testing.T) {
			bubble(t, func(c *cluster) {
				store := sharding.NewMemoryEntities()
				var ids []string
				for g, shards := range change {
					ns := c.generation(g, shards, store)
					c.settled(10*time.Second, ns...)
					if g == 0 {
						for i := range 40 {
							ids = append(ids, fmt.Sprint("id", i))
							require.NoError(t, ns[i%2].region.Tell(ids[i], job{"x", 1}))
						}
					}
					c.runs(5*time.Second, ids...)
					c.over(ns)
				}
			})
		})
	}
}

// The same, if the node that moves what is remembered dies in the middle, at whatever
// write; and if the number is changed again before it was done.
func TestAChangeOfTheNumberMayBeInterrupted(t *testing.T) {
	for _, next := range []int{32, 8, 2} {
		for _, at := range tier.Sample([]int{1, 2, 3, 10, 25, 34, 36, 39, 40}) {
			t.Run(fmt.Sprint(next, " at ", at), func(t *testing.T) {
				bubble(t, func(c *cluster) {
					store := &tripping{EntityStore: sharding.NewMemoryEntities()}
					ns := c.generation(0, 8, store)
					c.settled(10*time.Second, ns...)
					var ids []string
					for i := range 40 {
						ids = append(ids, fmt.Sprint("id", i))
						require.NoError(t, ns[i%2].region.Tell(ids[i], job{"x", 1}))
					}
					c.runs(5*time.Second, ids...)
					c.over(ns)

					var ill *node // who is first to coordinate
					store.at, store.trip = at, func() { ill.crash(); c.log.died(ill.id) }
					ill = c.node("a1")
					ill.start(32, sharding.WithRemember(store, 0))
					time.Sleep(5 * time.Second)
					synctest.Wait()
					if next != 32 && !ill.dead { // it was done before
						ill.crash()
						c.log.died(ill.id)
					}
					if next != 32 {
						time.Sleep(2 * ttl)
					}
					c.generation(2, next, store)
					c.runs(3*ttl, ids...)
				})
			})
		}
	}
}

// What was forgotten stays so when the number of shards changes.
func TestForgottenEntitiesDoNotComeBackWithANewNumber(t *testing.T) {
	bubble(t, func(c *cluster) {
		var lives atomic.Int32
		store := sharding.NewMemoryEntities()
		for g, shards := range []int{8, 32, 8} {
			ns := c.nodes(fmt.Sprint("a", g), fmt.Sprint("b", g))
			for _, n := range ns {
				n.startType(sharding.Type{Name: "account", Props: guests(&lives), Shards: shards},
					sharding.WithRemember(store, 0))
			}
			c.settled(10*time.Second, ns...)
			for i := range 40 {
				if g == 0 {
					require.NoError(t, ns[0].region.Tell(fmt.Sprint("id", i), howMany{}))
				}
			}
			time.Sleep(3 * time.Second)
			require.Equal(t, 40-20*g, ns[0].region.Info().Entities+ns[1].region.Info().Entities)
			for i := range 20 {
				if g < 2 {
					require.NoError(t, ns[0].region.Tell(fmt.Sprint("id", 20*g+i), forget{}))
				}
			}
			time.Sleep(3 * time.Second)
			c.over(ns)
		}
	})
}

// meddling is a store whose Load returns ids that it must not.
type meddling struct{ sharding.EntityStore }

func (m meddling) Load(ctx context.Context, o lease.Ownership) ([]string, error) {
	ids, err := m.EntityStore.Load(ctx, o)
	if strings.HasPrefix(o.Name(), "shard/") {
		for i := range 16 {
			ids = append(ids, fmt.Sprint("id", i))
		}
		ids = append(ids, "", "\xff", strings.Repeat("x", sharding.MaxEntityID+1))
	}
	return ids, err
}

// An id of another shard, or an invalid one, is never started, and that is told.
func TestForeignIDsAreNotStarted(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		told := map[int]error{}
		var mu sync.Mutex
		for _, n := range ns {
			n.system.EventStream.Subscribe(func(e any) {
				if e, ok := e.(sharding.Event); ok && e.Kind == sharding.NotRemembered {
					mu.Lock()
					defer mu.Unlock()
					told[e.Shard] = e.Reason
				}
			})
			n.start(8, sharding.WithRemember(meddling{sharding.NewMemoryEntities()}, 0))
		}
		c.settled(10*time.Second, ns...)
		time.Sleep(3 * time.Second)
		var ids []string
		for i := range 16 {
			ids = append(ids, fmt.Sprint("id", i))
		}
		c.runs(5*time.Second, ids...)
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, told, 8)
		require.ErrorContains(t, told[0], "are of other shards, or no ids")
	})
}
