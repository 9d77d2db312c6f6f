package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/placement"
	"github.com/holdfast-go/holdfast/store"
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

// 15: what finds a buffer full is counted and dead-lettered.
func TestScenario15BuffersAreBounded(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("p")
		n.startType(sharding.Type{Name: "account", Shards: 4}, sharding.WithBuffer(10, 25, hosting.DropNewest))
		dead := 0
		n.system.EventStream.Subscribe(func(e any) {
			if _, ok := e.(*actor.DeadLetterEvent); ok {
				dead++
			}
		})
		for i := range 100 { // nobody hosts
			require.NoError(t, n.region.Tell(fmt.Sprint(i), job{"x", 1}))
		}
		in := n.region.Info()
		require.Equal(t, 25, in.Waiting)
		require.EqualValues(t, 75, in.Dropped)
		synctest.Wait()
		require.Equal(t, 75, dead)
		_, err := ask(n, "late", 1)
		require.ErrorIs(t, err, hosting.ErrUndeliverable)
	})
}

// 17: what can't be sent or read is told to who asked, and harms nobody.
func TestScenario17UnknownTypes(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b", 8)
		there := ""
		for i, o := range owners(ns[0]) {
			if o == "b" {
				there = idOf(i, 8)
			}
		}
		type unregistered struct{}
		_, err := sharding.Ask[done](contextFor(t, time.Second), ns[0].region, there, unregistered{})
		var u *hosting.UndeliverableError
		require.ErrorAs(t, err, &u)
		require.Equal(t, hosting.ReasonUnknownType, u.Notice.Reason)
		require.Equal(t, there, u.Notice.Key)
		ns[0].system.Root.Send(processAt("b:1"), &wire.Envelope{Name: "shard/g/account/0", Key: there,
			Type: "nobody.knows", Codec: "json"})
		ns[0].system.Root.Send(processAt("b:1"), &wire.Envelope{Name: "shard/g/other/0", Key: "x", Type: "t"})
		ns[0].system.Root.Send(processAt("b:1"), &wire.Frame{})
		ns[0].system.Root.Send(processAt("b:1"), &wire.Order{})
		ns[0].system.Root.Send(processAt("b:1"), &wire.HandedOver{Name: "shard/g/account/0"})
		_, err = ask(ns[0], there, 1)
		require.NoError(t, err)
		require.NotZero(t, ns[1].region.Info().Undeliverable)
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

// 19: a shard that moves on and on keeps its mail in order.
func TestScenario19AChase(t *testing.T) {
	bubble(t, func(c *cluster) {
		var turn atomic.Int32
		chase := placement.StrategyFunc(func(v placement.View) []string {
			target := placement.Balanced{}.Target(v)
			if len(v.Hosts) > 0 {
				for i := range target {
					target[i] = v.Hosts[(int(turn.Load())+i)%len(v.Hosts)].Incarnation
				}
			}
			return target
		})
		ns := c.hosting("a b c", 6, sharding.WithStrategy(chase), sharding.WithSettle(0))
		f := c.traffic(2*time.Millisecond, ns...)
		moves := tier.Draws(60, 60)
		for range moves {
			turn.Add(1)
			for _, n := range ns {
				n.region.Reconsider()
			}
			time.Sleep(30 * time.Millisecond)
		}
		f.end()
		moved := int64(0)
		for _, n := range ns {
			in := n.region.Info()
			require.Zero(t, in.Dropped+in.Undeliverable+in.Unordered, n.id)
			moved += in.HandedOff
		}
		require.Greater(t, moved, int64(moves))
	})
}

// 20: the member lease is lost while shard leases stand: the node stops trusting
// all of them.
func TestScenario20TheMembershipIsLost(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		var lost atomic.Int32
		ns[1].system.EventStream.Subscribe(func(e any) {
			if e, ok := e.(sharding.Event); ok && e.Kind == sharding.Lost && errors.Is(e.Reason, sharding.ErrNotHosting) {
				lost.Add(1)
			}
		})
		c.startAll(ns, 8)
		for rec, err := range c.store.List(context.Background(), store.Query{Prefix: "member/g/b/"}) {
			require.NoError(t, err)
			_, err = c.store.Release(context.Background(), []store.Held{rec.Held()})
			require.NoError(t, err)
		}
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 4, lost.Load())
		c.settled(30*time.Second, ns...)
		c.log.check()
	})
}

// 21: what an entity has accepted it finishes, within the deadline, before its shard
// moves on.
func TestScenario21AContinuationFinishes(t *testing.T) {
	bubble(t, func(c *cluster) {
		type finish struct{}
		var finished atomic.Int32
		props := actor.PropsFromProducer(func() actor.Actor {
			busy, stopping := false, false
			return actor.ReceiveFunc(func(ctx actor.Context) {
				switch ctx.Message().(type) {
				case job:
					busy = true
					future := actor.NewFuture(ctx.ActorSystem(), 10*time.Second)
					time.AfterFunc(2*time.Second, func() { ctx.ActorSystem().Root.Send(future.PID(), done{}) })
					ctx.ReenterAfter(future, func(any, error) {
						finished.Add(1)
						if busy = false; stopping {
							ctx.Stop(ctx.Self())
						}
					})
				case finish:
					if stopping = true; !busy {
						ctx.Stop(ctx.Self())
					}
				}
			})
		})
		ns := c.hostingType("a b", sharding.Type{Name: "account", Shards: 4, Props: props},
			sharding.WithStop(func() any { return finish{} }, 5*time.Second))
		for i := range 12 {
			require.NoError(t, ns[0].region.Tell(fmt.Sprint("id", i), job{}))
		}
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, ns[0].region.Drain(contextFor(t, 8*time.Second)))
		require.NotZero(t, finished.Load())
		synctest.Wait()
		time.Sleep(5 * time.Second)
		require.EqualValues(t, 12, finished.Load())
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
