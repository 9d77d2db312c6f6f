package sharding_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding"
)

// Members of the group that have not started the type, have no Props for it, or not the
// role, are given no shard, whatever becomes of the others, and take none.
func TestANodeWithoutTheTypeTakesNone(t *testing.T) {
	bubble(t, func(c *cluster) {
		host, second := c.node("a", membership.WithRoles("host")), c.node("b", membership.WithRoles("host"))
		stranger, without, outsider := c.node("c"), c.node("d", membership.WithRoles("host")), c.node("e")
		host.start(4, asRole("host", host)...)
		second.start(4, asRole("host", second)...)
		without.startType(sharding.Type{Name: "account", Shards: 4}, asRole("host", without)...)
		outsider.start(4, asRole("host", outsider)...)
		c.settled(5*time.Second, host, second)
		require.NoError(t, second.region.Stop(context.Background()))
		c.settled(5*time.Second, host)

		// Neither by an order nor by an invitation.
		in := host.region.Info()
		for _, n := range []*node{stranger, without, outsider} {
			o := &wire.Order{Type: "g/account", From: wire.NodeOf(in.Coordinator), Coordinator: uint64(in.Token), Shards: 4,
				To: n.keeper.Owner().Incarnation, Assignments: []*wire.Assignment{{Shard: 0, Token: uint64(in.Table[0].Token)}}}
			host.system.Root.Send(processAt(n.system.Address()), o)
			host.system.Root.Send(processAt(n.system.Address()), &wire.Invite{Name: "shard/g/account/0", Number: 1,
				From: wire.NodeOf(host.keeper.Owner())})
		}
		host.crash()
		c.log.died("a")
		time.Sleep(3 * ttl)
		for _, n := range []*node{without, outsider} {
			require.Equal(t, make([]string, 4), owners(n), "nobody takes them")
		}
		for _, n := range []*node{stranger, without, outsider} {
			for _, name := range heldBy(t, c, n) {
				require.Regexp(t, "^region/", name)
			}
		}
		second.start(4, asRole("host", second)...)
		c.settled(ttl, second)
		for _, n := range []*node{second, without, outsider} {
			got, err := ask(n, "x", 1)
			require.NoError(t, err)
			require.Equal(t, "b", got.Node)
		}
		c.log.check()
	})
}

// A node that has hosted and begins anew without Props is given no shard any more.
func TestANodeThatRestartsWithoutPropsTakesNoShard(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b", 4)
		require.NoError(t, ns[0].region.Stop(context.Background()))
		ns[0].startType(sharding.Type{Name: "account", Shards: 4})
		time.Sleep(2 * ttl)
		require.Equal(t, []string{"b", "b", "b", "b"}, owners(ns[0]))
		got, err := ask(ns[0], "x", 1)
		require.NoError(t, err)
		require.Equal(t, "b", got.Node)
	})
}
