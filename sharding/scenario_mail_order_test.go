package sharding_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/sharding"
)

// 4: thousands of messages in a mailbox at the moment of a planned stop are taken up by
// the next host, once and in order, with an effort that grows as their number does;
// the node ends when they are, though that takes longer than it lingers.
func TestScenarioMail4ALongMailbox(t *testing.T) {
	const linger = 3 * time.Second
	effort := func(n int) (messages uint64, took time.Duration) {
		bubble(t, func(c *cluster) {
			x := c.crew(slowAt(1, time.Second), sharding.WithLinger(linger))
			id := idOf(0, crewShards)
			here, there := x.voice(x.a, id, 60), x.voice(x.s, id, 60)
			for i := range n / 2 {
				here.say()
				there.say()
				if i%500 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			time.Sleep(100 * time.Millisecond)
			require.GreaterOrEqual(t, x.a.region.Info().Waiting, n-3, "what waits in mailboxes counts")
			before, _ := c.net.Wire("a:1", "b:1")
			c.net.Shape("a:1", "b:1", memnet.Link{Delay: 5 * time.Millisecond, Bandwidth: tier.Draws(600_000, 600_000)})
			began := time.Now()
			require.NoError(t, x.a.region.Stop(context.Background()))
			took = time.Since(began)
			synctest.Wait()
			require.Empty(t, x.dead)
			here.are(c.log.of(here.name, id))
			there.are(c.log.of(there.name, id))
			in := x.a.region.Info()
			require.Zero(t, in.Waiting+int(in.Dropped+in.Undeliverable+in.Unordered))
			after, _ := c.net.Wire("a:1", "b:1")
			messages = after - before
		})
		return messages, took
	}
	n := tier.Draws(7_500, 7_500)
	few, _ := effort(n)
	many, took := effort(4 * n)
	require.Greater(t, took, 2*linger)
	t.Logf("messages on the link: %d for %d, %d for %d", few, n, many, 4*n)
	require.Less(t, many, 4*few+200)
	require.Greater(t, many, uint64(4*n-100))
	require.Less(t, many, uint64(4*n*11/10))
}

// 5: the newest message of a sender is never first, wherever older ones of it wait.
func TestScenarioMail5NothingIsOvertaken(t *testing.T) {
	slow := func(c *cluster, x *crew, d time.Duration) {
		for _, from := range x.all {
			for _, to := range x.all {
				c.net.SetDelay(from.id+":1", to.id+":1", d)
			}
		}
	}
	t.Run("in a mailbox that is taken back", func(t *testing.T) {
		bubble(t, func(c *cluster) {
			x := c.crew(slowAt(1, 2*time.Second))
			id := idOf(0, crewShards)
			slow(c, x, 2*time.Millisecond)
			for _, n := range x.all {
				x.voice(n, id, 0).say()
			}
			time.Sleep(100 * time.Millisecond)
			x.talk(time.Microsecond, 3*time.Millisecond) // more than the buffer of a shard holds
			x.move("b")
			x.talk(10*time.Millisecond, 3*time.Second)
			x.awaitHost("b")
			time.Sleep(10 * time.Second)
			x.inOrder()
		})
	})
	t.Run("in a window that is full", func(t *testing.T) {
		bubble(t, func(c *cluster) {
			x := c.crew(nil, sharding.WithBuffer(20_000, 100_000, hosting.DropNewest))
			v := x.voice(x.s, idOf(0, crewShards), 2000)
			v.say()
			time.Sleep(time.Second)
			c.net.Shape("s:1", "a:1", memnet.Link{Bandwidth: 1 << 20})
			for range 4000 {
				v.say()
			}
			require.NotZero(t, x.s.region.Info().Waiting, "the window is full")
			for range tier.Draws(10_000, 10_000) { // as it gets room
				v.say()
				time.Sleep(2 * time.Millisecond)
			}
			time.Sleep(time.Minute)
			x.inOrder()
		})
	})
	t.Run("in the buffer, until there is a host", func(t *testing.T) {
		bubble(t, func(c *cluster) {
			x := &crew{cluster: c, dead: map[job]int{}}
			x.all = c.nodes("s", "a")
			x.s, x.a = x.all[0], x.all[1]
			x.s.startType(sharding.Type{Name: "account", Shards: crewShards})
			v := x.voice(x.s, idOf(0, crewShards), 0)
			for range 900 {
				v.say()
			}
			slow(c, x, 2*time.Millisecond)
			x.a.start(crewShards)
			for range 5000 {
				v.say()
				time.Sleep(10 * time.Millisecond)
				if x.s.region.Info().Waiting == 0 {
					break
				}
			}
			x.talk(100*time.Microsecond, 100*time.Millisecond)
			time.Sleep(5 * time.Second)
			x.inOrder()
		})
	})
}

// retire is how an entity is told to stop that ends when it is ready.
type retire struct{}

// 6: a drain that takes longer than every timer, then a second and a third move before
// the mail of the first has arrived.
func TestScenarioMail6ALongDrainAndMovesBehindIt(t *testing.T) {
	for _, rate := range []time.Duration{100 * time.Millisecond, time.Second} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			bubble(t, func(c *cluster) {
				x := c.crew(func(n *node, ctx actor.Context) {
					if _, ok := ctx.Message().(retire); ok {
						ctx.Stop(ctx.Self())
					}
					slowAt(1, 90*time.Second)(n, ctx)
				}, sharding.WithStop(func() any { return retire{} }, 2*time.Minute), sharding.WithBuffer(10_000, 100_000, hosting.DropNewest))
				id := idOf(0, crewShards)
				for _, n := range x.all {
					x.voice(n, id, 100)
				}
				x.voices[2].say() // begins to be handled, for 90 s; the other 1s follow
				time.Sleep(time.Second)
				x.talk(time.Millisecond, 500*time.Millisecond)
				x.move("b")
				x.talk(rate, 5*time.Minute) // each voice's first takes its time
				x.awaitHost("b")
				for _, from := range x.all {
					for _, to := range x.all {
						c.net.Shape(from.id+":1", to.id+":1", memnet.Link{Delay: 50 * time.Millisecond, Bandwidth: 50_000})
					}
				}
				for _, host := range []string{"a", "b", "a"} {
					x.move(host)
					x.talk(50*time.Millisecond, 500*time.Millisecond)
				}
				x.awaitHost("a")
				time.Sleep(5 * time.Minute)
				x.inOrder()
			})
		})
	}
}
