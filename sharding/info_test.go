package sharding_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding"
)

func TestAnyNodeTellsHowThingsStand(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := []*node{c.node("a", membership.WithCapacity(3)), c.node("b")}
		for _, n := range ns {
			n.start(8)
		}
		p := c.node("p")
		p.start(8, sharding.WithProxyOnly())
		time.Sleep(5 * time.Second)
		for i := range 10 {
			require.NoError(t, p.region.Tell(fmt.Sprint("id", i), job{"x", 1}))
		}
		time.Sleep(time.Second)
		first := coordinatorFirst(ns)[0].id
		for _, n := range append(ns, p) {
			in := n.region.Info()
			require.Equal(t, []any{"g", "account", n.id, 8, first}, []any{in.Group, in.Type, in.Node, in.Shards, in.Coordinator.ID})
			require.Len(t, in.Nodes, 3)
			held := map[string]int{}
			for _, x := range in.Nodes {
				held[x.ID] = x.Shards
				require.Equal(t, x.ID != "p", x.Hosts)
				require.True(t, x.Member)
			}
			require.Equal(t, map[string]int{"a": 6, "b": 2, "p": 0}, held, "by capacity")
		}
		require.Equal(t, 10, ns[0].region.Info().Entities+ns[1].region.Info().Entities)

		all, err := p.region.Survey(contextFor(time.Second))
		require.NoError(t, err)
		require.Len(t, all, 3)
		require.Equal(t, 10, all["a"].Entities+all["b"].Entities)
		require.Equal(t, 6, all["a"].Held)
		require.Len(t, all["p"].Table, 8)
		c.net.Freeze("b:1")
		all, err = p.region.Survey(contextFor(time.Second))
		require.ErrorContains(t, err, `no answer from node "b"`)
		require.Len(t, all, 2)
		c.net.Thaw("b:1")
	})
}
