package sharding_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/asker"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store/faultclock"
)

// asRole are the options by which a node hosts only if it has a role.
func asRole(role string, n *node) []sharding.Option {
	if n.group.HasRole(role) {
		return nil
	}
	return []sharding.Option{sharding.WithProxyOnly()}
}

func askPID[R any](ctx context.Context, system *actor.ActorSystem, to *actor.PID, msg any) (R, error) {
	return asker.Ask[R](ctx, system, nil, func(e *actor.MessageEnvelope) { system.Root.Send(to, e) }, msg)
}

// Stop and Drain from many sides at once all end, the type can be started again on
// the same system, and nothing is left behind.
func TestStopFromManySidesAndStartAgain(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 12)
		f := c.traffic(20*time.Millisecond, ns[1:]...)
		for range 3 {
			r := ns[0].region
			old, err := r.Ref("id1")
			require.NoError(t, err)
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() { require.NoError(t, r.Stop(context.Background())) })
				all.Go(func() {
					if err := r.Drain(context.Background()); err != nil {
						require.ErrorIs(t, err, sharding.ErrUndrained)
					}
				})
				all.Go(r.Undrain)
			}
			all.Wait()
			require.ErrorIs(t, r.Tell("id1", job{"x", 1}), sharding.ErrClosed)
			_, err = r.Ref("id1")
			require.ErrorIs(t, err, sharding.ErrClosed)
			_, err = askPID[done](contextFor(time.Second), ns[0].system, old, job{"old", 1})
			require.ErrorIs(t, err, hosting.ErrUndeliverable)
			require.NoError(t, r.Stop(context.Background()))
			ns[0].start(12)
			c.settled(10*time.Second, ns...)
			_, err = ask(ns[0], "id1", 1)
			require.NoError(t, err)
			ref, err := ns[0].region.Ref("id1")
			require.NoError(t, err)
			_, err = askPID[done](contextFor(time.Second), ns[0].system, ref, job{"new", 1})
			require.NoError(t, err)
		}
		f.end()
		c.whole(ns...)
		require.NoError(t, ns[0].region.Stop(context.Background()))
		for _, part := range ns[0].system.ProcessRegistry.LocalPIDs.LocalPIDs {
			for _, name := range part.Keys() {
				require.NotContains(t, name, "sharding/", "left behind")
			}
		}
	})
}

// Stop with an end to its patience at any moment of a start: it ends all the same.
func TestStopAtAnyMomentOfTheStart(t *testing.T) {
	for at := time.Duration(0); at < 700*time.Millisecond; at += 700 * time.Millisecond / time.Duration(tier.Draws(31, 31)) {
		bubble(t, func(c *cluster) {
			ns := c.nodes("a", "b")
			for _, n := range ns {
				n.start(8)
			}
			time.Sleep(at)
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := ns[0].region.Stop(ctx); err != nil { // it may have ended at that moment
				require.ErrorIs(t, err, context.Canceled)
			}
			require.NoError(t, ns[0].region.Stop(contextFor(12*time.Second)), "stopped after %v", at)
			c.settled(5*time.Second, ns[1])
			_, err := ask(ns[1], "x", 1)
			require.NoError(t, err)
			c.log.check()
		})
	}
}

// Several types live side by side on some nodes; a group's leader need not run
// any of them, and may leave; a node without the role only reaches them.
func TestSeveralTypesUnderALeaderThatRunsNone(t *testing.T) {
	bubble(t, func(c *cluster) {
		lead := c.node("lead")
		a, b := c.node("a", membership.WithRoles("worker"), membership.WithCapacity(3)), c.node("b",
			membership.WithRoles("worker"))
		p := c.node("p")
		regions := map[string]map[*node]*sharding.Region{"one": {}, "two": {}}
		for name, rs := range regions {
			for _, n := range []*node{p, b, a} {
				rs[n] = n.startType(sharding.Type{Name: name, Props: n.props(), Shards: 16}, asRole("worker", n)...)
			}
		}
		check := func(number int) {
			t.Helper()
			for name, rs := range regions {
				held := map[string]int{}
				for _, s := range rs[p].Info().Table {
					held[s.Owner]++
				}
				require.Equal(t, map[string]int{"a": 12, "b": 4}, held, "by capacity")
				for n, r := range rs {
					for i := range 16 {
						id := fmt.Sprint(name, idOf(i, 16))
						got, err := sharding.Ask[done](contextFor(time.Second), r, id, job{n.id, number})
						require.NoError(t, err)
						require.Equal(t, id, got.ID)
					}
				}
			}
		}
		time.Sleep(3 * time.Second)
		check(1)
		require.NoError(t, lead.group.Leave(context.Background()))
		time.Sleep(3 * time.Second)
		check(2)
		for name, rs := range regions {
			require.NotEqual(t, "p", rs[a].Info().Coordinator.ID)
			for n := range rs {
				for i := range 16 {
					c.log.complete(n.id, fmt.Sprint(name, idOf(i, 16)), 2)
				}
			}
		}
		c.log.check()
	})
}

// talker passes messages on.
type talker struct {
	self *sharding.Entity
	seen *sync.Map
}

type (
	passOn   struct{ To []string }
	askOther struct{ To string }
	spawnOne struct{}
)

func (k *talker) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		k.self, _ = sharding.Of(ctx)
	case passOn:
		n, _ := k.seen.LoadOrStore(k.self.ID(), new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
		if len(m.To) > 0 {
			_ = k.self.Region().Tell(m.To[0], passOn{m.To[1:]})
		}
	case askOther:
		ctx2, cancel := context.WithTimeout(k.self.Context(), time.Second)
		defer cancel()
		got, err := sharding.Ask[int](ctx2, k.self.Region(), m.To, howMany{})
		if err != nil {
			got = -1
		}
		ctx.Respond(got)
	case howMany:
		ctx.Respond(7)
	case spawnOne:
		child := ctx.Spawn(k.self.Guard(actor.PropsFromFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(howMany); ok {
				ctx.Respond(8)
			}
		})))
		ctx.RequestWithCustomSender(child, howMany{}, ctx.Sender())
	}
}

// Entities send to each other, to themselves and to those of their own shard, ask
// each other, and have children.
func TestEntitiesAmongThemselves(t *testing.T) {
	bubble(t, func(c *cluster) {
		var seen sync.Map
		n := c.node("a")
		r := n.startType(sharding.Type{Name: "account", Shards: 2,
			Props: actor.PropsFromProducer(func() actor.Actor { return &talker{seen: &seen} },
				actor.WithGuardian(actor.DefaultSupervisorStrategy()))})
		c.settled(5*time.Second, n)
		count := func(id string) int32 {
			x, _ := seen.LoadOrStore(id, new(atomic.Int32))
			return x.(*atomic.Int32).Load()
		}
		require.NoError(t, r.Tell("x", passOn{[]string{"x", "x", "y", "z", "x"}}))
		time.Sleep(time.Second)
		require.Equal(t, []int32{4, 1, 1}, []int32{count("x"), count("y"), count("z")})
		for i := range 10 { // some of the same shard
			got, err := sharding.Ask[int](contextFor(2*time.Second), r, "x", askOther{fmt.Sprint(i)})
			require.NoError(t, err)
			require.Equal(t, 7, got)
		}
		got, err := sharding.Ask[int](contextFor(2*time.Second), r, "x", spawnOne{})
		require.NoError(t, err)
		require.Equal(t, 8, got)
		c.whole(n)
	})
}

// A Ref stays good across passivation, crashes, ends and moves, and on other nodes.
func TestARefStaysGood(t *testing.T) {
	bubble(t, func(c *cluster) {
		does := actor.PropsFromFunc(func(ctx actor.Context) {
			m, ok := ctx.Message().(*wrapperspb.StringValue)
			if !ok {
				return
			}
			e, _ := sharding.Of(ctx)
			switch m.Value {
			case "passivate":
				e.Passivate()
			case "panic":
				panic("as asked")
			case "stop":
				ctx.Stop(ctx.Self())
			default:
				ctx.Respond(m)
			}
		})
		ns := c.hostingType("a b", sharding.Type{Name: "account", Shards: 4, Props: does})
		ref, err := ns[0].region.Ref("x")
		require.NoError(t, err)
		again, err := ns[0].region.Ref("x")
		require.NoError(t, err)
		require.True(t, ref.Equal(again))
		works := func() {
			t.Helper()
			for _, n := range ns {
				pid := actor.NewPID(ref.Address, ref.Id)
				got, err := askPID[*wrapperspb.StringValue](contextFor(2*time.Second), n.system, pid,
					wrapperspb.String(n.id))
				require.NoError(t, err, n.id)
				require.Equal(t, n.id, got.Value)
			}
		}
		works()
		for _, n := range ns {
			for _, m := range []string{"passivate", "panic", "stop"} {
				n.system.Root.Send(actor.NewPID(ref.Address, ref.Id), wrapperspb.String(m))
				works()
			}
			require.NoError(t, n.region.Drain(context.Background()))
			works()
			n.region.Undrain()
			c.settled(20*time.Second, ns...)
			works()
		}
		ns[0].system.Root.Stop(ref) // is no actor
		ns[0].system.Root.Poison(ref)
		works()
		c.whole(ns...)
	})
}

// A system without remote has its entities to itself.
func TestANodeAlone(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := &node{c: c, id: "a", clock: faultclock.New(), system: actor.NewActorSystem(remoting.LogTo(nil))}
		var err error
		n.keeper, err = lease.NewKeeper(c.store, lease.Config{ID: "a", TTL: ttl, Clock: n.clock})
		require.NoError(t, err)
		c.atEnd(func() { require.NoError(t, n.keeper.Close(context.Background())) })
		n.group, err = membership.Join(context.Background(), n.keeper, "g")
		require.NoError(t, err)
		for range 2 {
			r := n.start(4)
			for i := range 4 {
				_, err := sharding.Ask[done](contextFor(3*time.Second), r, idOf(i, 4), job{"x", 1})
				require.NoError(t, err)
				ref, err := r.Ref(idOf(i, 4))
				require.NoError(t, err)
				_, err = askPID[done](contextFor(time.Second), n.system, ref, job{"x", 2})
				require.NoError(t, err)
			}
			began := time.Now()
			require.NoError(t, r.Stop(context.Background()))
			require.Less(t, time.Since(began), time.Second, "there is nobody to wait for")
		}
		c.whole(n)
		c.log.check()
	})
}
