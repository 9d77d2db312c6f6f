package sharding_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/barelease"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding"
)

// ownCoordinator starts the type on nodes whose coordinator obeys a lease of the four methods,
// of a store of its own, and follows a leader.
func ownCoordinator(c *cluster, ns []*node, shards int) (leases []*barelease.Lease, links []*barelease.Node, lead func(int)) {
	c.t.Helper()
	book := barelease.NewBook()
	var leaders []*membership.Static
	lead = func(i int) {
		for _, l := range leaders {
			l.Set(ns[i].keeper.Owner())
		}
	}
	for _, n := range ns {
		leaders = append(leaders, membership.NewStatic(n.keeper.Owner()))
	}
	lead(0)
	for i, n := range ns {
		link := barelease.NewNode(book, n.clock)
		c.atEnd(link.Heal)
		l, err := link.Lease("boss", ttl)
		require.NoError(c.t, err)
		leases, links = append(leases, l), append(links, link)
		n.start(shards, sharding.WithCoordinatorLease(l), sharding.WithLeadership(leaders[i]))
	}
	return leases, links, lead
}

// coordinates waits until the node with that lease coordinates, and no other.
func coordinates(t *testing.T, leases []*barelease.Lease, i int) {
	t.Helper()
	for range 600 {
		if leases[i].CheckAlive() {
			require.False(t, leases[1-i].CheckAlive())
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.Fail(t, "it does not coordinate")
}

// The coordinator follows the leader over a lease of the four methods; with a coordinator that
// is cut off from its lease, the shards go on, and the next one moves them.
func TestACoordinatorUnderABareLeaseFollowsTheLeader(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		leases, links, lead := ownCoordinator(c, ns, 12)
		c.settled(15*time.Second, ns...)
		f := c.traffic(100*time.Millisecond, ns...)
		for i := range 4 {
			lead(i % 2)
			coordinates(t, leases, i%2)
			time.Sleep(time.Second)
		}
		lead(0)
		coordinates(t, leases, 0)
		links[0].Cut()
		lead(1)
		coordinates(t, leases, 1)
		links[0].Heal()
		d := c.node("d") // moved by the one that coordinates now
		l, err := barelease.NewNode(barelease.NewBook(), d.clock).Lease("boss", ttl)
		require.NoError(t, err)
		follower := membership.NewStatic(d.keeper.Owner())
		follower.Set(ns[1].keeper.Owner())
		d.start(12, sharding.WithCoordinatorLease(l), sharding.WithLeadership(follower))
		c.settled(30*time.Second, append(slices.Clone(ns), d)...)
		require.False(t, l.CheckAlive())
		f.end()
		c.whole(append(ns, d)...)
	})
}

// What docs/own-lease.md says of a coordinator without tokens: an order of an earlier one that
// comes late is obeyed, as nothing tells it from the present one's. Its shard moves, is never in
// two places, and is moved back.
func TestWithoutTokensALateOrderIsObeyed(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		leases, _, lead := ownCoordinator(c, ns, 12)
		c.settled(15*time.Second, ns...)
		lead(1)
		coordinates(t, leases, 1)
		time.Sleep(time.Second)
		f := c.traffic(100*time.Millisecond, ns...)
		from, to := ns[1], ns[0]
		table := from.region.Info().Table
		shard := -1
		for i, x := range table {
			if x.Owner == from.id {
				shard = i
			}
		}
		o := &wire.Order{Type: "g/account", From: wire.NodeOf(ns[0].keeper.Owner()), Shards: 12, To: from.keeper.Owner().Incarnation,
			Assignments: []*wire.Assignment{{Shard: uint32(shard), Token: uint64(table[shard].Token), Next: wire.NodeOf(to.keeper.Owner())}}}
		to.system.Root.Send(processAt(from.id+":1"), o) // of a, which coordinated before
		moved := false
		for range 200 {
			moved = moved || from.region.Info().Table[shard].Owner == to.id
			time.Sleep(time.Millisecond)
		}
		require.True(t, moved, "it is obeyed")
		c.settled(30*time.Second, ns...)
		f.end()
		c.whole(ns...)
	})
}

// The coordinator follows the leader over a store that can't transfer, too.
func TestTheCoordinatorFollowsTheLeaderWithoutTransfers(t *testing.T) {
	overLists(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		var leaders []*membership.Static
		lead := func(i int) {
			for _, l := range leaders {
				l.Set(ns[i].keeper.Owner())
			}
		}
		for _, n := range ns {
			leaders = append(leaders, membership.NewStatic(n.keeper.Owner()))
		}
		lead(0)
		for i, n := range ns {
			n.start(12, sharding.WithLeadership(leaders[i]))
		}
		c.settled(20*time.Second, ns...)
		f := c.traffic(100*time.Millisecond, ns...)
		for i := 1; i < 5; i++ {
			lead(i % 2)
			want := ns[i%2].id
			for j := 0; ns[0].region.Info().Coordinator.ID != want || ns[1].region.Info().Coordinator.ID != want; j++ {
				require.Less(t, j, 300, "%s does not coordinate", want)
				time.Sleep(100 * time.Millisecond)
			}
			c.settled(0, ns...)
		}
		f.end()
		c.whole(ns...)
	})
}

// A node crashes where the store can't watch: its shards are taken when their records have run out.
func TestACrashWithoutWatches(t *testing.T) {
	overLists(t, func(c *cluster) {
		ns := c.nodes("a", "b", "d")
		for _, n := range ns {
			n.start(12)
		}
		c.settled(20*time.Second, ns...)
		f := c.traffic(200*time.Millisecond, ns[0])
		time.Sleep(time.Second)
		f.end()
		ns[2].crash()
		c.log.died("d")
		c.settled(3*ttl+10*time.Second, ns[:2]...)
		c.log.check()
	})
}
