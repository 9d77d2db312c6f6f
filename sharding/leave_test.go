package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/placement"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
)

// slow is an entity that takes its time to stop.
type slow struct{}

func (slow) Receive(ctx actor.Context) {
	if _, ok := ctx.Message().(*actor.Stopping); ok {
		time.Sleep(700 * time.Millisecond)
	}
}

// A node that leaves hands over all it has, however long that takes, as long as it goes
// on.
func TestALeaveLastsAsLongAsItGoesOn(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hostingType("a b", sharding.Type{Name: "account", Shards: 32,
			Props: actor.PropsFromProducer(func() actor.Actor { return slow{} })},
			sharding.WithMoveLimits(placement.MoveLimits{PerHost: 1}))
		for i := range 200 {
			require.NoError(t, ns[0].region.Tell(fmt.Sprint("id", i), job{"x", 1}))
		}
		time.Sleep(time.Second)
		had, began := ns[0].region.Info().HandedOff, time.Now()
		require.NoError(t, ns[0].region.Stop(context.Background()))
		require.Greater(t, time.Since(began), 10*time.Second, "one after the other")
		require.EqualValues(t, 16, ns[0].region.Info().HandedOff-had)
	})
}

// ActorSystem.Shutdown leaves no shard held, without package node too.
func TestARegionEndsWithItsActorSystem(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b", 6)
		ns[0].system.Shutdown()
		c.settled(10*time.Second, ns[1:]...)
		ended := func(n *node) bool { return errors.Is(n.region.Health(context.Background()), sharding.ErrClosed) }
		time.Sleep(10 * time.Second)
		require.True(t, ended(ns[0]))
		ns[1].system.Shutdown()
		time.Sleep(30 * time.Second)
		require.True(t, ended(ns[1]))
		for rec := range c.store.List(context.Background(), store.Query{Prefix: "shard/"}) {
			require.Fail(t, "held", "%+v", rec)
		}
	})
}

// An actor system that is shut down while Start waits ends the Region once.
func TestAnActorSystemThatEndsWhileARegionStarts(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		time.Sleep(time.Second)
		n.store.Partition()
		time.AfterFunc(1500*time.Millisecond, func() { n.system.Shutdown() })
		_, err := sharding.Start(n.system, n.group, sharding.Type{Name: "account", Props: n.props(), Shards: 6}, sharding.WithLogger(zap.NewNop()))
		require.ErrorIs(t, err, lease.ErrUnknown)
		n.store.Heal()
	})
}

// The manager of the coordinator forwards nobody's mail: a node that had the coordinator ends as
// soon as its shards have moved.
func TestANodeThatHadTheCoordinatorEndsAtOnce(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns, lead := c.led(4)
		time.Sleep(10 * time.Second)
		require.Equal(t, "a", ns[1].region.Info().Coordinator.ID)
		lead(1)
		for ns[0].region.Info().Coordinator.ID != "b" {
			time.Sleep(10 * time.Millisecond)
		}
		began := time.Now()
		require.NoError(t, ns[0].region.Stop(context.Background()))
		require.Less(t, time.Since(began), handover.QuietPeriod)
	})
}

// When all nodes stop together, none waits for another to take its shards.
func TestAllNodesStopTogether(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 24)
		began := time.Now()
		var wg sync.WaitGroup
		for _, n := range ns {
			wg.Go(func() { _ = n.region.Stop(context.Background()) })
		}
		wg.Wait()
		require.Less(t, time.Since(began), 5*time.Second)
	})
}

// A node that lost its registration, and finds that the others have agreed on another
// number of shards meanwhile, takes no part.
func TestANodeThatComesBackToAnotherCountStaysOut(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		told := make(chan error, 1000)
		ns[0].hears(sharding.CountMismatch, func(e sharding.Event) { told <- e.Reason })
		ns[0].start(8)
		c.settled(5*time.Second, ns[0])
		ns[0].store.Partition()
		time.Sleep(2 * ttl)
		ns[1].start(16) // nobody else is left
		c.settled(5*time.Second, ns[1])
		ns[0].store.Heal()
		time.Sleep(2 * ttl)
		require.ErrorIs(t, <-told, sharding.ErrShardCount)
		require.Zero(t, ns[0].region.Info().Held)
		for rec, err := range c.store.List(context.Background(), store.Query{Prefix: "region/g/account/a/"}) {
			require.NoError(t, err)
			require.Empty(t, rec, "it is not registered")
		}
		require.Equal(t, 16, ns[1].region.Info().Held)
	})
}

// The metrics count what they say.
func TestMetrics(t *testing.T) {
	bubble(t, func(c *cluster) {
		reads := c.metered()
		read := func(n *node) map[string]int64 { return reads[n.id]() }
		ns := c.hostingType("a b", sharding.Type{Name: "account", Props: guests(new(atomic.Int32)), Shards: 8},
			sharding.WithBuffer(2, 100, hosting.DropNewest))
		for i := range 8 {
			require.NoError(t, ns[0].region.Tell(idOf(i, 8), job{"x", 1}))
		}
		time.Sleep(time.Second)
		for _, n := range ns {
			require.EqualValues(t, 4, read(n)["hosted"])
			require.EqualValues(t, 4, read(n)["entities"])
		}
		require.NoError(t, ns[0].region.Tell(idOf(0, 8), collapse{}))
		type unregistered struct{}
		for i := range 8 {
			_ = ns[0].region.Tell(idOf(i, 8), unregistered{}) // four are elsewhere
		}
		time.Sleep(time.Second)
		require.EqualValues(t, 4, read(ns[0])["undeliverable"])
		require.Positive(t, read(ns[0])["crashes"]+read(ns[1])["crashes"])
		require.NoError(t, ns[0].region.Drain(context.Background()))
		time.Sleep(time.Second)
		require.EqualValues(t, 4, read(ns[0])["handoff"])
		require.Zero(t, read(ns[0])["hosted"])
		require.EqualValues(t, 8, read(ns[1])["hosted"])
		ns[1].crash()
		time.Sleep(100 * time.Millisecond) // the link is known to be broken
		for range 10 {
			require.NoError(t, ns[0].region.Tell(idOf(0, 8), job{"x", 2}))
		}
		time.Sleep(time.Second)
		require.Positive(t, read(ns[0])["dropped"])
		require.Positive(t, read(ns[0])["waiting"])
	})
}

// A node that leaves goes on forwarding while another does not know yet that it has:
// here one that is cut off from the store, and one that is slow to say so, too.
func TestANodeThatLeavesWaitsUntilOthersKnow(t *testing.T) {
	t.Run("cut off", func(t *testing.T) { leaveUnknown(t, 0) })
	t.Run("slow", func(t *testing.T) { leaveUnknown(t, 400*time.Millisecond) })
}

func leaveUnknown(t *testing.T, slow time.Duration) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 12)
		for i := range 12 {
			require.NoError(t, ns[2].region.Tell(idOf(i, 12), job{"c", 1}))
		}
		time.Sleep(time.Second)
		ns[2].store.Partition()
		inquiry.Of(ns[2].system).Tell("slow", func(context.Context, inquiry.Request, *inquiry.Report) { time.Sleep(slow) })
		stopped := make(chan struct{})
		began := time.Now()
		go func() {
			_ = ns[0].region.Stop(context.Background())
			close(stopped)
		}()
		sent := 1
		for open := true; open; sent++ {
			for i := range 12 {
				require.NoError(t, ns[2].region.Tell(idOf(i, 12), job{"c", sent + 1}))
			}
			time.Sleep(100 * time.Millisecond)
			select {
			case <-stopped:
				open = false
			case <-time.After(100 * time.Millisecond):
			}
		}
		took := time.Since(began)
		require.Greater(t, took, 4*time.Second, "as long as it may")
		require.Less(t, took, 8*time.Second)
		ns[2].store.Heal()
		time.Sleep(ttl)
		for i := range 12 { // what was sent when it had gone for good is not
			got := c.log.of("c", idOf(i, 12))
			require.GreaterOrEqual(t, len(got), 20, "in %v", took)
			for k, n := range got {
				require.Equal(t, k+1, n)
			}
		}
	})
}

// What a node was to host is ordered again when the link to it broke: the order may
// have been lost with it, as it is with protoactor's remote for two seconds after an
// attempt to connect that failed.
func TestOrdersLostWithALinkAreRepeated(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		var lost atomic.Int64
		c.net.SetLoss(func(string, string) bool { lost.Add(1); return true }) // either may coordinate
		for _, n := range ns {
			n.start(10)
		}
		time.Sleep(time.Second)
		if lost.Load() == 0 {
			t.Fatal("no order was on its way")
		}
		c.net.SetLoss(nil)
		for i, n := range ns { // as remote says when it gives a link up; the next one works
			n.system.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: ns[1-i].system.Address()})
		}
		c.settled(time.Second, ns...)
	})
}

// So is what was to be handed over.
func TestMovesLostWithALinkAreOrderedAgain(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b", 12)
		d := c.node("d")
		var lost atomic.Int64
		c.net.SetLoss(func(string, string) bool { lost.Add(1); return true })
		d.start(12)
		time.Sleep(2 * time.Second) // the order of the one that does not coordinate is lost
		if lost.Load() == 0 {
			t.Fatal("no order was on its way")
		}
		c.net.SetLoss(nil)
		ns = append(ns, d)
		for _, n := range ns {
			for _, o := range ns {
				if n != o {
					n.system.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: o.system.Address()})
				}
			}
		}
		c.settled(6*time.Second, ns...) // and not after the 15 s that a hand-over may take
		c.log.check()
	})
}

// A shard that ends, slowly, while its remembered entities are being started leaves the node's
// pace to the others.
func TestAShardThatEndsLeavesThePaceToTheOthers(t *testing.T) {
	const ids, pace = 1500, 50
	bubble(t, func(c *cluster) {
		store := sharding.NewMemoryEntities()
		for _, id := range numbered(ids) {
			o := owner{fmt.Sprint("shard/g/account/", sharding.ShardOf(id, 2))}
			require.NoError(t, store.Update(t.Context(), o, []string{id}, nil))
		}
		free := make(chan struct{})
		var began [2]atomic.Int32
		typ := sharding.Type{Name: "account", Shards: 2, Props: actor.PropsFromFunc(func(ctx actor.Context) {
			switch ctx.Message().(type) {
			case *actor.Started:
				e, _ := sharding.Of(ctx)
				began[e.Shard()].Add(1)
			case *actor.Stopping:
				<-free
			}
		})}
		opts := []sharding.Option{sharding.WithRemember(store, pace), sharding.WithSettle(100 * time.Millisecond),
			sharding.WithStop(nil, time.Minute)}
		a, b := c.node("a"), c.node("b")
		a.startType(typ, opts...)
		for began[0].Load() == 0 || began[1].Load() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		b.startType(typ, opts...)
		time.Sleep(3 * time.Second) // one of them ends by now
		before := [2]int32{began[0].Load(), began[1].Load()}
		time.Sleep(4 * time.Second)
		more := max(began[0].Load()-before[0], began[1].Load()-before[1])
		close(free)
		require.Greater(t, int(more), 4*pace*3/4, "entities of the shard that stays, in 4 s")
		require.NoError(t, a.region.Stop(context.Background()))
	})
}
