package sharding_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
)

// 8: tokens that are yet to come, from a node that is ahead or lies, take half of what a
// node may hold; idle entities are started meanwhile; and what had them is refused when
// no such ownership came within the lease's TTL.
func TestScenarioMail8TokensYetToCome(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		const shards, total = 16, 4000
		r := n.start(shards, sharding.WithBuffer(1000, total, hosting.DropNewest))
		c.settled(5*time.Second, n)
		asker, refused := n.asker()
		for i := range shards {
			for range 500 {
				n.system.Root.Send(processAt("a:1"), &wire.Envelope{Name: fmt.Sprint("shard/g/account/", i), Key: idOf(i, shards),
					Token: math.MaxInt64, Type: "google.protobuf.Empty", Sender: wire.AddressOf(asker), Request: true})
			}
		}
		synctest.Wait()
		require.LessOrEqual(t, r.Info().Waiting, total/2)
		require.Greater(t, r.Info().Waiting, total/4)
		for i := range 100 {
			_, err := ask(n, fmt.Sprint("fresh", i), 1)
			require.NoError(t, err, "an entity that did not run is started")
		}
		time.Sleep(ttl + time.Second)
		in := r.Info()
		require.Zero(t, in.Waiting)
		require.EqualValues(t, shards*500, in.Dropped+in.Undeliverable)
		require.NotZero(t, in.Undeliverable)
		require.EqualValues(t, in.Undeliverable, refused(hosting.ReasonNoSuchToken), "who asked is told")
		require.EqualValues(t, in.Dropped, refused(hosting.ReasonOverflow))
	})
}

// asker is an actor that counts why its messages came to nobody.
func (n *node) asker() (pid *actor.PID, refused func(hosting.Reason) int64) {
	var counts [32]atomic.Int64
	pid = n.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		if u, ok := ctx.Message().(hosting.Undeliverable); ok {
			counts[u.Notice().Reason].Add(1)
		}
	}))
	return pid, func(r hosting.Reason) int64 { return counts[r].Load() }
}

// 9: what is too large, by itself or with its headers, is refused on the goroutine of
// who sends it; its sender is told, though that is a Ref of the same shard. It runs on
// real time, over the remote that refuses.
func TestScenarioMail9DeadLettersOfTheSameShard(t *testing.T) {
	if tier.Racing {
		t.Skip("protoactor's remote sets gRPC's logger whenever one starts, while others of the process log")
	}
	const patience = 30 * time.Second // it runs on real time
	store := memory.New()
	var regions []*sharding.Region
	for _, id := range []string{"a", "b"} {
		system := actor.NewActorSystem(remoting.LogTo(nil))
		cfg, err := remoting.Configure("127.0.0.1", 0, remoting.WithPlaintext())
		require.NoError(t, err)
		node, err := remoting.Start(system, cfg)
		require.NoError(t, err)
		t.Cleanup(func() { node.Shutdown(false) })
		k, err := lease.NewKeeper(store, lease.Config{ID: id, Address: node.Address(), TTL: time.Minute})
		require.NoError(t, err)
		t.Cleanup(func() { _ = k.Close(context.Background()) })
		g, err := membership.Join(context.Background(), k, "g")
		require.NoError(t, err)
		t.Cleanup(func() { _ = g.Leave(context.Background()) })
		r, err := sharding.Start(system, g, sharding.Type{Name: "account", Shards: 2,
			Props: actor.PropsFromFunc(func(ctx actor.Context) {
				if _, ok := ctx.Message().(*wrapperspb.BytesValue); ok && ctx.Sender() != nil {
					ctx.Respond(wrapperspb.Bool(true))
				}
			})}, sharding.WithSettle(0), sharding.WithLinger(time.Second))
		require.NoError(t, err)
		regions = append(regions, r)
	}
	r := regions[0]
	away := -1
	require.Eventually(t, func() bool {
		held := map[string]int{}
		for i, s := range r.Info().Table {
			if held[s.Owner]++; s.Owner == "b" {
				away = i
			}
		}
		return held["a"] == 1 && held["b"] == 1
	}, patience, 10*time.Millisecond)
	ids := idsOf(away, 2, 2)
	works := func() {
		t.Helper()
		_, err := sharding.Ask[*wrapperspb.BoolValue](contextFor(patience), r, ids[0], wrapperspb.Bytes([]byte("x")))
		require.NoError(t, err)
	}
	works()
	self, err := r.Ref(ids[1])
	require.NoError(t, err)
	const most = remoting.DefaultMaxMessageSize
	for i, e := range []*actor.MessageEnvelope{
		{Message: wrapperspb.Bytes(make([]byte, most-(65<<10))), Header: map[string]string{"trace": strings.Repeat("h", 70<<10)}},
		{Message: wrapperspb.Bytes(nil), Header: map[string]string{"trace": strings.Repeat("h", most)}},
		{Message: wrapperspb.Bytes(make([]byte, most+1))},
		{Message: wrapperspb.String(strings.Repeat("s", 2*most))},
	} {
		before := r.Info().Undeliverable
		returned := make(chan error, 1)
		go func() {
			e.Sender = self
			returned <- r.Tell(ids[0], e)
		}()
		select {
		case err := <-returned:
			require.NoError(t, err)
		case <-time.After(patience):
			require.FailNow(t, "Tell hangs", "message %d", i)
		}
		require.Greater(t, r.Info().Undeliverable, before, "message %d is refused before it goes to remote", i)
		e.Sender = nil
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_, err := sharding.Ask[*wrapperspb.BoolValue](ctx, r, ids[0], e)
		cancel()
		require.ErrorIs(t, err, hosting.ErrUndeliverable)
		works()
	}
	for _, r := range regions {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		require.NoError(t, r.Stop(ctx))
		cancel()
	}
}

// idsOf returns ids of a shard.
func idsOf(shard, shards, n int) (ids []string) {
	for i := 0; len(ids) < n; i++ {
		if id := fmt.Sprint("y", i); sharding.ShardOf(id, shards) == shard {
			ids = append(ids, id)
		}
	}
	return ids
}

// After Yield, and after a loss with a handler that hangs, the node that gave a shard up
// reaches the entities that another one hosts now.
func TestTheOldHostsCallersReachTheNewHost(t *testing.T) {
	for _, loss := range []bool{false, true} {
		t.Run(fmt.Sprint("loss=", loss), func(t *testing.T) {
			bubble(t, func(c *cluster) {
				hold := make(chan struct{})
				defer close(hold)
				ns := c.hostingType("a b", sharding.Type{Name: "account", Shards: 4,
					Props: actor.PropsFromProducer(func() actor.Actor { return &stubborn{c: c, hold: hold} })},
					sharding.WithStop(nil, time.Second), sharding.WithOverdue(hosting.ReleaseAfterTTL))
				mine := slices.Index(owners(ns[0]), "a")
				ids := idsOf(mine, 4, 2)
				require.NoError(t, ns[0].region.Tell(ids[0], block{}))
				time.Sleep(10 * time.Millisecond)
				if loss {
					ns[0].store.Partition()
					time.Sleep(2 * ttl)
					ns[0].store.Heal()
				} else {
					go func() { _ = ns[0].region.Drain(context.Background()) }()
				}
				time.Sleep(8*time.Second + 3*ttl)
				for i, n := range []*node{ns[1], ns[0]} {
					for k, id := range []string{ids[1], ids[0]} { // b runs the one that hangs at a, too
						got, err := ask(n, id, 2*i+k)
						require.NoError(t, err, n.id)
						require.Equal(t, "b:1", got.Node)
					}
				}
			})
		})
	}
}

// An entity that crashes again and again leaves room for its neighbours.
func TestACrashingEntityLeavesRoomForItsNeighbours(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		var got atomic.Int32
		r := n.startType(sharding.Type{Name: "account", Shards: 1, Props: actor.PropsFromProducer(func() actor.Actor {
			time.Sleep(20 * time.Millisecond) // making an entity takes a moment
			return actor.ReceiveFunc(func(ctx actor.Context) {
				self, _ := sharding.Of(ctx)
				if _, ok := ctx.Message().(job); !ok {
					return
				}
				if self.ID() == "bad" {
					panic("a bad entity")
				}
				got.Add(1)
			})
		})})
		c.settled(5*time.Second, n)
		for range 3000 { // more than the buffer of a shard
			require.NoError(t, r.Tell("bad", job{}))
		}
		time.Sleep(5 * time.Second)
		for range 1000 {
			require.NoError(t, r.Tell("bad", job{}))
		}
		require.GreaterOrEqual(t, r.Info().Waiting, 1000)
		before := r.Info().Dropped
		for i := range 10 {
			for k := range 10 {
				require.NoError(t, r.Tell(fmt.Sprint("good", i), job{Number: k}))
			}
		}
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 100, got.Load())
		require.Equal(t, before, r.Info().Dropped)
	})
}

// What is lost with a peer is counted.
func TestMailThatIsLostWithAPeerIsCounted(t *testing.T) {
	for name, end := range map[string]func(x *crew){
		"killed": func(x *crew) { x.b.crash() },
		"hung, then killed": func(x *crew) {
			x.net.Freeze("b:1")
			x.talk(10*time.Millisecond, 3*time.Second)
			x.b.crash()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(c *cluster) {
				x := c.crew(nil)
				x.move("b")
				x.awaitHost("b")
				for _, n := range []*node{x.a, x.s} {
					x.voice(n, idOf(0, crewShards), 0)
					c.net.SetDelay(n.id+":1", "b:1", 100*time.Millisecond)
				}
				x.talk(time.Millisecond, 2*time.Second)
				end(x)
				c.log.died("b")
				x.talk(10*time.Millisecond, 3*time.Second)
				time.Sleep(3 * ttl)
				x.all = []*node{x.a, x.s}
				handled := x.fates()
				lost := x.a.region.Info().Unconfirmed + x.s.region.Info().Unconfirmed
				require.Greater(t, handled, 3000)
				require.GreaterOrEqual(t, lost, int64(100), "what was on its way")
				require.LessOrEqual(t, lost, int64(1000), "what had arrived long before was known to have")
			})
		})
	}
}

// What its asker has given up is not delivered later, from a buffer of this node or of
// another one.
func TestMessagesOfAskersThatGaveUpAreNotDelivered(t *testing.T) {
	giveUp := func(t *testing.T, n *node, id string, number int) {
		t.Helper()
		_, err := sharding.Ask[done](contextFor(time.Second), n.region, id, job{"asks", number}) // in an Envelope, as a Go value
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	t.Run("here", func(t *testing.T) {
		bubble(t, func(c *cluster) {
			s, a := c.node("s"), c.node("a")
			s.startType(sharding.Type{Name: "account", Shards: 4})
			giveUp(t, s, "x", 1)
			require.NoError(t, s.region.Tell("x", job{"tells", 1}))
			a.start(4)
			c.settled(10*time.Second, a)
			time.Sleep(5 * time.Second)
			c.log.complete("tells", "x", 1)
			require.Empty(t, c.log.of("asks", "x"))
			require.EqualValues(t, 1, s.region.Info().Undeliverable)
		})
	})
	t.Run("at the former host", func(t *testing.T) {
		bubble(t, func(c *cluster) {
			x := c.crew(func(n *node, ctx actor.Context) {
				if _, ok := ctx.Message().(retire); ok {
					ctx.Stop(ctx.Self())
				}
				slowAt(7, 5*time.Second)(n, ctx)
			}, sharding.WithStop(func() any { return retire{} }, time.Minute))
			id := idOf(0, crewShards)
			require.NoError(t, x.a.region.Tell(id, job{"first", 7}))
			time.Sleep(100 * time.Millisecond)
			giveUp(t, x.s, id, 1) // in the mailbox
			x.move("b")
			time.Sleep(100 * time.Millisecond)
			giveUp(t, x.s, id, 2) // in the buffer of a, while the entity ends
			require.NoError(t, x.s.region.Tell(id, job{"tells", 1}))
			time.Sleep(20 * time.Second)
			c.log.complete("tells", id, 1)
			require.NotContains(t, c.log.of("asks", id), 2)
			require.NotZero(t, x.a.region.Info().Undeliverable)
		})
	})
}
