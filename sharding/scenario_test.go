package sharding_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/placement"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
)

// These are the scenarios of sharding, by number.

func ask(n *node, id string, number int) (done, error) {
	return sharding.Ask[done](contextFor(2*time.Second), n.region, id, job{n.id, number})
}

// idOf returns an id of a shard.
func idOf(shard, shards int) string {
	for i := 0; ; i++ {
		if id := fmt.Sprint("x", i); sharding.ShardOf(id, shards) == shard {
			return id
		}
	}
}

func processAt(addr string) *actor.PID { return actor.NewPID(addr, "holdfast/sharding/g/account") }

func owners(n *node) (all []string) {
	for _, s := range n.region.Info().Table {
		all = append(all, s.Owner)
	}
	return all
}

func tokens(n *node) (all []lease.Token) {
	for _, s := range n.region.Info().Table {
		all = append(all, s.Token)
	}
	return all
}

// coordinatorFirst puts the node first on which the coordinator is: of some that start at
// once it may be any.
func coordinatorFirst(ns []*node) []*node {
	at := slices.IndexFunc(ns, func(n *node) bool { return n.id == ns[0].region.Info().Coordinator.ID })
	return slices.Concat(ns[max(at, 0):], ns[:max(at, 0)])
}

// In a rollout by version each shard moves once, from a node of the old one to one of the new.
func TestARolloutMovesEachShardOnce(t *testing.T) {
	bubble(t, func(c *cluster) {
		const shards = 24
		start := func(id, version string) *node {
			n := c.node(id, membership.WithLabels(map[string]string{"version": version}))
			n.start(shards, sharding.WithStrategy(placement.Balanced{Prefer: newest}))
			return n
		}
		var old []*node
		for _, id := range []string{"a", "b", "c"} {
			old = append(old, start(id, "1.9"))
		}
		c.settled(5*time.Second, old...)
		moves, at := make([]int, shards), owners(old[0])
		var all []*node
		look := func() {
			time.Sleep(10 * time.Second)
			for i, owner := range owners(all[0]) {
				require.NotEmpty(t, owner)
				if owner != at[i] {
					moves[i]++
				}
				at[i] = owner
			}
		}
		for i, id := range []string{"d", "e", "f"} {
			all = append(all, start(id, "1.10"))
			look()
			require.NoError(t, old[i].group.AnnounceLeaving(context.Background()))
			require.NoError(t, old[i].region.Stop(context.Background()))
			look()
		}
		require.Equal(t, slices.Repeat([]int{1}, shards), moves)
		c.settled(0, all...)

		_, err := sharding.Start(all[0].system, all[0].group, sharding.Type{Name: "other", Props: all[0].props()},
			sharding.WithStrategy(placement.Balanced{Prefer: membership.Preferences{{}}}))
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, "WithStrategy")
	})
}

// 1: a node with another number of shards is refused, with both numbers, and hosts
// nothing.
func TestScenario01AnotherShardCountIsRefused(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		ns[0].start(16)
		c.settled(5*time.Second, ns[0])
		_, err := sharding.Start(ns[1].system, ns[1].group, sharding.Type{Name: "account", Props: ns[1].props(), Shards: 32})
		require.ErrorIs(t, err, sharding.ErrShardCount)
		require.ErrorContains(t, err, "32 here, 16 at node \"a\"")
		ns[1].start(16) // with the right one it may
		c.settled(5*time.Second, ns...)

		// When no node runs the type it can be changed.
		for _, n := range ns {
			require.NoError(t, n.region.Stop(context.Background()))
		}
		ns[1].start(32)
		c.settled(5*time.Second, ns[1])
	})
}

// 2 and 3: a coordinator that is cut off from the store stops deciding; what it
// ordered before is refused by nodes that know of its successor.
func TestScenario03AStaleCoordinatorIsRefused(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 12)
		ns = coordinatorFirst(ns)
		first := ns[0].region.Info()
		require.Equal(t, ns[0].id, first.Coordinator.ID)
		ns[0].store.Partition()
		time.Sleep(2*ttl + 5*time.Second)
		second := ns[1].region.Info()
		require.NotEqual(t, ns[0].id, second.Coordinator.ID)
		require.Greater(t, second.Token, first.Token)
		c.settled(5*time.Second, ns[1:]...)
		require.Empty(t, ns[0].region.Info().Held)

		// An order of the first, landing late, about the present token of a shard.
		s := second.Table[0]
		from := ns[1]
		if s.Owner == ns[2].id {
			from = ns[2]
		}
		other := ns[1]
		if from == other {
			other = ns[2]
		}
		order := &wire.Order{Type: "g/account", From: &wire.Node{Address: ns[0].id + ":1", Incarnation: first.Coordinator.Incarnation},
			Coordinator: uint64(first.Token), Shards: 12, To: from.keeper.Owner().Incarnation,
			Assignments: []*wire.Assignment{{Shard: 0, Token: uint64(s.Token),
				Next: &wire.Node{Address: other.id + ":1", Incarnation: other.keeper.Owner().Incarnation}}}}
		ns[0].system.Root.Send(processAt(from.id+":1"), order)
		time.Sleep(time.Second)
		require.Equal(t, second.Table[0], ns[1].region.Info().Table[0], "not obeyed")
		ns[0].store.Heal()
		c.settled(30*time.Second, ns...)
	})
}

// 7: an entity that does not stop is stopped by the deadline, and keeps only its own
// shard; a third node that is dead, or does not answer, delays nobody.
func TestScenario07NobodyElseDelaysAHandOff(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c d", 16)
		f := c.traffic(20*time.Millisecond, ns[:2]...)
		c.net.Freeze("d:1") // it lives, by its lease, and answers nobody
		began := time.Now()
		require.NoError(t, ns[2].region.Drain(contextFor(8*time.Second)))
		t.Logf("drained in %v", time.Since(began))
		require.Zero(t, ns[2].region.Info().Held)
		c.net.Thaw("d:1")
		ns[2].region.Undrain()
		c.settled(20*time.Second, ns...)
		f.end()
	})
}

// contextFor is done after d: not at the end of a test, which is outside of its bubble.
func contextFor(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// stubborn ignores that it is to stop, until it is let go.
type stubborn struct {
	c    *cluster
	hold chan struct{}
	self *sharding.Entity
}

type block struct{}

func (s *stubborn) Receive(ctx actor.Context) {
	switch ctx.Message().(type) {
	case *actor.Started:
		s.self, _ = sharding.Of(ctx)
		s.c.log.began(s.self.ID(), ctx.Self().Address, s.self.Token())
	case *actor.Stopped:
		s.c.log.ended(s.self.ID(), ctx.Self().Address, s.self.Token())
	case block:
		<-s.hold
	case job:
		ctx.Respond(done{ID: s.self.ID(), Token: s.self.Token(), Node: ctx.Self().Address})
	}
}

func TestScenario07AStubbornEntity(t *testing.T) {
	for _, yields := range []bool{false, true} {
		subtest(t, fmt.Sprint("yields=", yields), func(t *testing.T, c *cluster) {
			hold := make(chan struct{})
			var reported atomic.Int32
			policy := hosting.KeepLease
			if yields {
				policy = hosting.ReleaseAfterTTL
			}
			ns := c.hostingType("a b", sharding.Type{Name: "account", Shards: 4,
				Props: actor.PropsFromProducer(func() actor.Actor { return &stubborn{c: c, hold: hold} })},
				sharding.WithStop(nil, time.Second), sharding.WithOverdue(policy))
			ns[0].counts(sharding.NotStopping, &reported)
			mine := slices.Index(owners(ns[0]), "a")
			id := idOf(mine, 4)
			require.NoError(t, ns[0].region.Tell(id, block{}))
			time.Sleep(10 * time.Millisecond)
			go func() { _ = ns[0].region.Drain(context.Background()) }()
			time.Sleep(8 * time.Second)
			require.Equal(t, 1, ns[0].region.Info().Held, "the other shards have gone")
			require.NotZero(t, reported.Load())
			if yields {
				c.log.died("a:1") // it is shut off, and its context is done
			}
			time.Sleep(ttl)
			got, err := ask(ns[1], id, 1)
			if yields {
				require.NoError(t, err, "given up after a TTL")
				require.Equal(t, "b:1", got.Node)
			} else {
				require.Error(t, err, "kept until it ends")
			}
			close(hold)
			time.Sleep(5 * time.Second)
			got, err = ask(ns[1], id, 2)
			require.NoError(t, err)
			require.Equal(t, "b:1", got.Node)
			c.log.check()
		})
	}
}

// 10: a new coordinator leaves alone what is owned, and a coordinator that loses its
// lease leaves its node's shards running.
func TestScenario10ANewCoordinatorMovesNothing(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 30)
		f := c.traffic(20*time.Millisecond, ns...)
		before, boss := tokens(ns[0]), ns[0].region.Info()
		recs, err := c.store.Get(context.Background(), "coordinator/g/account")
		require.NoError(t, err)
		_, err = c.store.Release(context.Background(), []store.Held{recs[0].Held()})
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		require.Greater(t, ns[0].region.Info().Token, boss.Token)
		require.Equal(t, before, tokens(ns[0]))
		f.end()
		c.whole(ns...)
	})
}

// 7: what a coordinator has ordered is done without it, and traffic goes on while it is
// paused.
func TestScenario07APausedCoordinatorDelaysNoHandOff(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 60)
		ns = coordinatorFirst(ns)
		a, b, z := ns[0].id, ns[1].id, ns[2].id
		require.Equal(t, a, ns[1].region.Info().Coordinator.ID)
		ns[1].reachesIDs(1)
		c.net.SetDelay(b+":1", z+":1", 2*time.Millisecond) // so that hand-offs take a moment
		c.net.SetDelay(z+":1", b+":1", 2*time.Millisecond)
		go func() { _ = ns[1].region.Drain(context.Background()) }()
		moving := func() (n int) {
			for _, s := range ns[1].region.Info().Table {
				if s.Phase != "" && s.Phase != phaseActive {
					n++
				}
			}
			return n
		}
		for moving() == 0 {
			time.Sleep(time.Millisecond)
		}
		under := moving()
		ns[0].store.Partition() // the coordinator is gone for now
		c.net.Freeze(a + ":1")
		began := time.Now()
		for moving() > 0 {
			time.Sleep(time.Millisecond)
		}
		took := time.Since(began)
		t.Logf("%d hand-offs were done %v after the coordinator was paused", under, took)
		require.Less(t, took, 500*time.Millisecond)
		for i := range ids { // all that is not on the paused node
			id := fmt.Sprint("id", i)
			if owners(ns[2])[sharding.ShardOf(id, 60)] != a {
				_, err := ask(ns[2], id, 2)
				require.NoError(t, err)
			}
		}
		c.net.Thaw(a + ":1")
		ns[0].store.Heal()
		c.settled(60*time.Second, ns[0], ns[2])
	})
}

// 14: a node that hosts nothing asks and tells; the answer finds its way; a Ref can
// be sent to from anywhere.
func TestScenario14AProxyOnlyNode(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.hosting("a b", 8)
		p := c.node("p")
		p.startType(sharding.Type{Name: "account", Shards: 8}) // no Props: a proxy
		for i := range 20 {
			got, err := ask(p, fmt.Sprint("id", i), i)
			require.NoError(t, err)
			require.Equal(t, i, got.Number)
		}
		answers := make(chan done, 10)
		sender := p.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			switch m := ctx.Message().(type) {
			case string:
				require.NoError(t, p.region.Tell(m, &actor.MessageEnvelope{Message: job{"s", 1}, Sender: ctx.Self()}))
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

// 10: with the coordinator away, traffic goes on; the next one is in charge soon.
func TestScenario10TheCoordinatorsNodeLeaves(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 30)
		ns = coordinatorFirst(ns)
		require.Equal(t, ns[0].id, ns[1].region.Info().Coordinator.ID)
		f := c.traffic(20*time.Millisecond, ns[1:]...)
		time.Sleep(time.Second)
		require.NoError(t, ns[0].region.Stop(context.Background()))
		require.NoError(t, ns[0].group.Leave(context.Background()))
		began := time.Now()
		for ns[1].region.Info().Coordinator.ID == ns[0].id || ns[1].region.Info().Coordinator.ID == "" {
			time.Sleep(10 * time.Millisecond)
		}
		require.Less(t, time.Since(began), 2*time.Second)
		c.settled(5*time.Second, ns[1:]...)
		f.end()
		c.whole(ns...)
	})
}

// 10: where another is to coordinate, the lease is transferred: nobody else can have
// it meanwhile.
func TestScenario10TheCoordinatorFollowsTheLeader(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns, lead := c.led(30)
		require.Equal(t, "a", ns[1].region.Info().Coordinator.ID)
		var handed atomic.Int32
		ns[0].system.EventStream.Subscribe(func(evt any) {
			if e, ok := evt.(singleton.Event); ok && e.Kind == singleton.HandedOver {
				handed.Add(1)
			}
		})
		lead(1)
		time.Sleep(time.Second)
		require.Equal(t, "b", ns[0].region.Info().Coordinator.ID)
		require.EqualValues(t, 1, handed.Load())
		c.whole(ns...)
	})
}

// 11: a rolling restart of all nodes loses nothing.
func TestScenario11ARollingRestart(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 24)
		outside := c.node("out")
		outside.start(24, sharding.WithProxyOnly())
		f := c.traffic(10*time.Millisecond, outside)
		for i, n := range ns {
			require.NoError(t, n.region.Stop(context.Background()))
			require.NoError(t, n.group.Leave(context.Background()))
			require.NoError(t, n.keeper.Close(context.Background()))
			c.net.Kill(n.system.Address())
			ns[i] = c.node(n.id)
			ns[i].start(24)
			c.settled(20*time.Second, ns...)
		}
		f.end()
		c.whole(outside)
		c.whole(ns...)
	})
}

// A program may stop its singletons before its Regions: the coordinator is the
// Region's to end.
func TestScenario11SingletonsAreStoppedFirst(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 24)
		f := c.traffic(10*time.Millisecond, ns[1], ns[2])
		for _, n := range ns { // whichever coordinates
			if n.region.Info().Coordinator.ID != n.id {
				continue
			}
			require.NoError(t, singleton.StopAll(context.Background(), n.system))
			began := time.Now()
			require.NoError(t, n.region.Stop(context.Background()))
			require.Less(t, time.Since(began), 5*time.Second)
			require.Zero(t, n.region.Info().Dropped)
			break
		}
		time.Sleep(time.Second)
		f.end()
		c.whole(ns[1], ns[2])
	})
}
