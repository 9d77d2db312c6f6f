package sharding_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

// ofOwn is the name of the coordinator's lease where the user gives it.
const ofOwn = "elsewhere/boss"

// startOwn runs the type with a coordinator that obeys that lease.
func (n *node) startOwn(shards int) {
	n.c.t.Helper()
	n.startBy(shards, n.keeper)
}

// startElsewhere does that with a lease of another store than the shards', and returns the
// Keeper of it.
func (n *node) startElsewhere(shards int, store lease.Store) *lease.Keeper {
	n.c.t.Helper()
	k := n.keeperOf(store)
	n.startBy(shards, k)
	return k
}

func (n *node) keeperOf(store lease.Store) *lease.Keeper {
	n.c.t.Helper()
	k, err := lease.NewKeeper(store, lease.Config{ID: n.id, Address: n.system.Address(), TTL: ttl, Clock: n.clock})
	require.NoError(n.c.t, err)
	n.c.atEnd(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = k.Close(ctx)
	})
	return k
}

func (n *node) startBy(shards int, k *lease.Keeper) {
	n.c.t.Helper()
	l, err := k.Lease(ofOwn)
	require.NoError(n.c.t, err)
	n.start(shards, sharding.WithCoordinatorLease(l))
}

// boss returns the record of that lease.
func (c *cluster) boss() lease.Record {
	c.t.Helper()
	return c.bossIn(c.store)
}

func (c *cluster) bossIn(store lease.Store) lease.Record {
	c.t.Helper()
	for end := time.Now().Add(back); ; time.Sleep(100 * time.Millisecond) { // it may be between two holders
		recs, err := store.Get(context.Background(), ofOwn)
		require.NoError(c.t, err)
		if len(recs) > 0 {
			return recs[0]
		}
		require.True(c.t, time.Now().Before(end), "nobody coordinates")
	}
}

// Two nodes leave, one after the other, the coordinator's first: the next coordinator, which
// has had nothing to order, moves what the second has.
func TestWhoLeavesFindsACoordinatorThatHasOrderedNothing(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b", "c", "d")
		for _, n := range ns {
			n.startOwn(12)
		}
		c.settled(15*time.Second, ns...)
		leave := func(n *node) {
			held := n.region.Info().Held
			began := time.Now()
			require.NoError(t, n.region.Stop(context.Background()))
			require.Less(t, time.Since(began), 5*time.Second, "%s: its shards were moved, not left to the end", n.id)
			require.EqualValues(t, held, n.region.Info().HandedOff)
			require.NoError(t, n.group.Leave(context.Background()))
		}
		first := c.boss().Owner.ID
		leave(ns[slices.IndexFunc(ns, func(n *node) bool { return n.id == first })])
		ns = slices.DeleteFunc(ns, func(n *node) bool { return n.id == first })
		time.Sleep(ttl)
		second := c.boss().Owner.ID
		require.NotEqual(t, first, second)
		leave(ns[slices.IndexFunc(ns, func(n *node) bool { return n.id != second })])
	})
}

// An order of a coordinator lands after one of the next, and after a time without any: it is
// refused, though the records do not tell who coordinates, as its sender is no member any more.
func TestAnOrderOfAnEarlierCoordinatorWithALeaseOfItsOwnIsRefused(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b", "c")
		for _, n := range ns {
			n.startOwn(12)
		}
		c.settled(15*time.Second, ns...)
		first := c.boss()
		ns = slices.DeleteFunc(ns, func(n *node) bool {
			if n.id == first.Owner.ID {
				n.store.Partition()
			}
			return n.id == first.Owner.ID
		})
		time.Sleep(2*ttl + 5*time.Second)
		require.Greater(t, c.boss().Token, first.Token)
		c.settled(5*time.Second, ns...)
		time.Sleep(3 * ttl)
		for i, n := range ns {
			before, next := n.region.Info(), ns[1-i]
			o := &wire.Order{Type: "g/account", From: wire.NodeOf(first.Owner), Coordinator: uint64(first.Token), Shards: 12,
				To: n.keeper.Owner().Incarnation}
			for shard, x := range before.Table {
				if x.Owner == n.id {
					o.Assignments = append(o.Assignments, &wire.Assignment{Shard: uint32(shard), Token: uint64(x.Token), Next: wire.NodeOf(next.keeper.Owner())})
				}
			}
			require.NotEmpty(t, o.Assignments)
			next.system.Root.Send(processAt(n.id+":1"), o)
			time.Sleep(100 * time.Millisecond)
			after := n.region.Info()
			for shard := range before.Table {
				require.Equal(t, before.Table[shard].Token, after.Table[shard].Token, "shard %d was moved", shard)
			}
		}
	})
}
