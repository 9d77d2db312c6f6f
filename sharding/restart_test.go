package sharding_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// blind keeps a node from learning what stands under a prefix.
func blind(prefix string) func(faultstore.Call) faultstore.Fault {
	return func(call faultstore.Call) faultstore.Fault {
		if call.Op == faultstore.Watch && len(call.Names) > 0 && strings.HasPrefix(call.Names[0], prefix) {
			return faultstore.Fault{Kind: faultstore.Delay, Delay: time.Hour}
		}
		return faultstore.Fault{}
	}
}

// heldBy lists what a node holds of the type.
func heldBy(t *testing.T, c *cluster, n *node) (names []string) {
	for _, prefix := range []string{"shard/", "region/", "coordinator/"} {
		for rec, err := range c.store.List(context.Background(), store.Query{Prefix: prefix}) {
			require.NoError(t, err)
			if rec.Owner.Incarnation == n.keeper.Owner().Incarnation {
				names = append(names, rec.Name)
			}
		}
	}
	return names
}

// A Start that fails has taken nothing, or gives it back, and can be repeated.
func TestAStartThatFailsLeavesNothingBehind(t *testing.T) {
	for what, spoil := range map[string]func(n *node) (mend func()){
		"the store is away": func(n *node) func() {
			n.store.Partition()
			return n.store.Heal
		},
		"the shards are not known": func(n *node) func() {
			n.store.SetRule(blind("shard/"))
			return func() { n.store.SetRule(nil) }
		},
		"the nodes are not known": func(n *node) func() {
			n.store.SetRule(blind("region/"))
			return func() { n.store.SetRule(nil) }
		},
		"the coordinator's lease has another handle": func(n *node) func() {
			h, err := n.keeper.Lease("coordinator/g/account")
			require.NoError(n.c.t, err)
			return func() { require.NoError(n.c.t, h.Close(context.Background())) }
		},
		"an actor has its name": func(n *node) func() {
			pid, ok := n.system.ProcessRegistry.Add(n.system.DeadLetter, process)
			require.True(n.c.t, ok)
			return func() { n.system.ProcessRegistry.Remove(pid) }
		},
	} {
		subtest(t, what, func(t *testing.T, c *cluster) {
			ns := c.nodes("a", "b")
			ns[0].start(4)
			c.settled(5*time.Second, ns[0])
			mend := spoil(ns[1])
			_, err := sharding.Start(ns[1].system, ns[1].group, sharding.Type{Name: "account",
				Props: ns[1].props(), Shards: 4})
			require.Error(t, err)
			require.Empty(t, heldBy(t, c, ns[1]))
			mend()
			time.Sleep(2 * ttl)
			require.Empty(t, heldBy(t, c, ns[1]))
			ns[0].reaches(4, 1)
			ns[1].start(4)
			c.settled(5*time.Second, ns...)
			c.log.check()
		})
	}
}

// What other nodes send to the PID of one Region reaches the next.
func TestThePIDSurvivesARestart(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.hosting("a", 4)[0]
		pid := processAt("a:1")
		for life := range 3 {
			typ, codec, payload, err := wire.Default.Encode(job{"s", life}, 1000)
			require.NoError(t, err)
			f := actor.NewFuture(n.system, 5*time.Second)
			n.system.Root.Send(pid, &wire.Envelope{Key: "x", Type: typ, Codec: codec, Payload: payload,
				Sender: &wire.Address{Address: f.PID().Address, Id: f.PID().Id, RequestId: f.PID().RequestId}})
			got, err := f.Result()
			require.NoError(t, err, "life %d", life)
			require.Equal(t, life, got.(done).Number)
			require.NoError(t, n.region.Stop(context.Background()))
			n.start(4)
		}
	})
}

// Remembered entities start again when their shard moves, those that were passivated, too.
func TestPassivatedEntitiesAreRecalled(t *testing.T) {
	bubble(t, func(c *cluster) {
		store := sharding.NewMemoryEntities()
		ns := c.hosting("a b", 8, sharding.WithRemember(store, 0), sharding.WithPassivation(4*time.Second))
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
		subtest(t, fmt.Sprint(shards), func(t *testing.T, c *cluster) {
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
	}
}

// The store's data is lost under live nodes. Tokens are far above what an empty store
// begins with, and all of it has watched: nodes, members, tables, routes. When that is
// accepted, every shard is hosted and reached again from everywhere.
func TestShardsComeBackAfterTheStoreHasLostItsData(t *testing.T) {
	bubble(t, func(c *cluster) {
		sw := faultstore.NewSwitch(c.store)
		require.NoError(t, faultstore.Restore(context.Background(), c.store, nil, 5000))
		c.front = sw
		ns := c.hosting("a b c", 8)
		number := 0
		reached := func() {
			t.Helper()
			for _, n := range ns {
				for i := range 16 {
					number++
					var err error
					for until := time.Now().Add(2 * ttl); time.Now().Before(until); {
						if _, err = sharding.Ask[done](contextFor(time.Second), n.region, fmt.Sprint("id", i),
							job{n.id, number}); err == nil {
							break
						}
					}
					require.NoError(t, err, "%s: id%d", n.id, i)
				}
			}
		}
		reached()

		c.store = memory.New()
		sw.To(c.store)
		time.Sleep(2 * ttl)
		for _, n := range ns {
			require.ErrorIs(t, n.keeper.Health(context.Background()), lease.ErrSetback, n.id)
		}
		for _, n := range ns {
			require.NoError(t, n.keeper.AcceptHistory(context.Background()))
		}
		c.settled(2*ttl, ns...)
		reached()
		for _, n := range ns {
			require.NoError(t, n.keeper.Health(context.Background()))
		}
		c.log.check()
	})
}
