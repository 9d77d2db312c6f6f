package sharding_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

// Remembered entities start again when their shard moves, those that were passivated, too.
func TestPassivatedEntitiesAreRecalled(t *testing.T) {
	bubble(t, func(c *cluster) {
		store := sharding.NewMemoryEntities()
		ns := c.nodes("a", "b")
		for _, n := range ns {
			n.start(8, sharding.WithRemember(store, 0), sharding.WithPassivation(4*time.Second))
		}
		c.settled(10*time.Second, ns...)
		for i := range 40 {
			require.NoError(t, ns[0].region.Tell(fmt.Sprint("id", i), job{"x", 1}))
		}
		for k := range 12 { // a quarter of them stays in use
			time.Sleep(time.Second)
			for i := range 10 {
				require.NoError(t, ns[0].region.Tell(fmt.Sprint("id", i), job{"x", k + 2}))
			}
		}
		c.runs(100*time.Millisecond, numbered(10)...)
		synctest.Wait()
		starts := c.log.starts
		for i := range 10 {
			require.NoError(t, ns[0].region.Tell(fmt.Sprint("id", i), job{"x", 14}))
		}
		ns[1].crash()
		c.log.died("b")
		time.Sleep(ttl + 2*time.Second)
		synctest.Wait()
		require.Greater(t, c.log.starts-starts, 10, "of those that were passivated, too")
		for i := range 40 {
			require.NoError(t, ns[0].region.Tell(fmt.Sprint("id", i), job{"y", 1}))
		}
		time.Sleep(time.Second)
		for i := range 40 {
			c.log.complete("y", fmt.Sprint("id", i), 1)
		}
		require.NoError(t, ns[0].region.Stop(context.Background()))
	})
}

func numbered(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint("id", i))
	}
	return ids
}

// owner owns the list of a shard before any node does.
type owner struct{ name string }

func (o owner) Name() string       { return o.name }
func (o owner) Token() lease.Token { return 1 }

// However many shards remembered entities are spread over, a node starts as many a second
// as it may.
func TestRememberedEntitiesStartAtTheNodesPace(t *testing.T) {
	const ids, pace = 1000, 500
	for _, shards := range []int{1, 512} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			bubble(t, func(c *cluster) {
				store := sharding.NewMemoryEntities()
				for _, id := range numbered(ids) {
					o := owner{fmt.Sprint("shard/g/account/", sharding.ShardOf(id, shards))}
					require.NoError(t, store.Update(t.Context(), o, []string{id}, nil))
				}
				n := c.node("a")
				n.start(shards, sharding.WithRemember(store, pace))
				began := time.Now()
				for n.region.Info().Entities < ids {
					if n.region.Info().Entities == 0 {
						began = time.Now()
					}
					require.Less(t, time.Since(began), 3*time.Second)
					time.Sleep(20 * time.Millisecond)
				}
				require.Greater(t, time.Since(began), 1900*time.Millisecond, "no faster than it may")
			})
		})
	}
}
