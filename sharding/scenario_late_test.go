package sharding_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/sharding"
)

// 14: a node that hosts nothing asks and tells; the answer finds its way; a Ref can
// be sent to from anywhere.
func TestScenario14AProxyOnlyNode(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		for _, n := range ns {
			n.start(8)
		}
		p := c.node("p")
		p.startType(sharding.Type{Name: "account", Shards: 8}) // no Props: a proxy
		c.settled(5*time.Second, ns...)
		for i := range 20 {
			got, err := ask(p, fmt.Sprint("id", i), i)
			require.NoError(t, err)
			require.Equal(t, i, got.Number)
		}
		answers := make(chan done, 10)
		sender := p.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			switch m := ctx.Message().(type) {
			case string:
				require.NoError(t, p.region.Request(m, job{"s", 1}, ctx.Self()))
			case *actor.PID:
				ctx.Request(m, job{"s", 2})
			case done:
				answers <- m
			}
		}))
		p.system.Root.Send(sender, "id3")
		require.Equal(t, "id3", (<-answers).ID)
		ref, err := p.region.Ref("id4")
		require.NoError(t, err)
		p.system.Root.Send(sender, ref)
		require.Equal(t, "id4", (<-answers).ID)
		require.Zero(t, p.region.Info().Held)

		got, err := sharding.Ask[done](context.Background(), p.region, "id6", job{"t", 1})
		require.NoError(t, err)
		require.Equal(t, "id6", got.ID)
	})
}

// 18: an order that was decided before the present is refused.
func TestScenario18AnOrderOfThePastIsRefused(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b", 4)
		in := ns[0].region.Info()
		before := in.Table
		for _, wrong := range []func(o *wire.Order){
			func(o *wire.Order) { o.Assignments[0].Token-- },
			func(o *wire.Order) { o.To = "an earlier life" },
			func(o *wire.Order) { o.Shards = 8 },
			func(o *wire.Order) { o.Type = "g/other" },
			func(o *wire.Order) { o.Assignments[0].Shard = 4 },
			func(o *wire.Order) { o.From.Address = "c:1" },
			func(o *wire.Order) { o.From.Incarnation = "another life" },
			func(o *wire.Order) { o.From, o.Coordinator = &wire.Node{Address: "c:1"}, o.Coordinator+1 },
		} {
			from, to := ns[0], ns[1]
			if before[0].Owner == "b" {
				from, to = to, from
			}
			o := &wire.Order{Type: "g/account", From: wire.NodeOf(in.Coordinator), Coordinator: uint64(in.Token), Shards: 4,
				To: from.keeper.Owner().Incarnation, Assignments: []*wire.Assignment{{Shard: 0, Token: uint64(before[0].Token),
					Next: &wire.Node{Address: to.id + ":1", Incarnation: to.keeper.Owner().Incarnation}}}}
			wrong(o)
			ns[1].system.Root.Send(processAt(from.id+":1"), o)
		}
		time.Sleep(time.Second)
		require.Equal(t, before, ns[0].region.Info().Table)
	})
}

// An order with a token that nobody has is no reason to refuse the true coordinator's.
func TestAForgedOrderShutsNoNodeOut(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b", 8)
		for _, n := range ns {
			ns[0].system.Root.Send(processAt(n.id+":1"), &wire.Order{Type: "g/account",
				From: &wire.Node{Address: "evil:1"}, Coordinator: 1 << 60,
				Shards: 8, To: n.keeper.Owner().Incarnation})
		}
		time.Sleep(time.Second)
		d := c.node("d")
		d.start(8)
		c.settled(20*time.Second, append(ns, d)...)
	})
}
