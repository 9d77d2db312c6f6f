package sharding_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/sharding"
)

// clerk answers what it is asked after a pause.
type clerk struct {
	n     *node
	pause time.Duration
	mute  atomic.Bool
}

func (c *clerk) start(shards int, opts ...sharding.Option) {
	c.n.startType(sharding.Type{Name: "account", Shards: shards, Props: actor.PropsFromFunc(func(ctx actor.Context) {
		if j, ok := jobOf(ctx.Message()); ok && !c.mute.Load() {
			time.Sleep(c.pause)
			if ctx.Sender() != nil {
				ctx.Respond(done{Number: j.Number, Node: c.n.id})
			}
		}
	})}, opts...)
}

// asked asks an entity from n, and says how long that took.
func asked(n *node, id string, number int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	began := time.Now()
	_, err := sharding.Ask[done](ctx, n.region, id, formOf(job{"s", number}))
	return time.Since(began), err
}

// after has f called in d.
func after(d time.Duration, f func()) { time.AfterFunc(d, f) }

// Who has asked over a link that breaks hears of it at once, in whatever form the message
// went. What could not be sent waits for the link, and is not given up for an earlier break.
func TestAskFailsWhenItsLinkBreaks(t *testing.T) {
	for what, number := range map[string]int{"in an envelope": 3, "by the short way": 1} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(c *cluster) {
				ns := c.nodes("a", "p")
				a := &clerk{n: ns[0]}
				a.start(2)
				ns[1].start(2, sharding.WithProxyOnly())
				c.settled(5*time.Second, ns[0])
				id := idOf(0, 2)
				_, err := asked(ns[1], id, number)
				require.NoError(t, err)

				a.mute.Store(true)
				after(2*time.Second, func() { c.net.Cut("a:1", "p:1") })
				took, err := asked(ns[1], id, number)
				require.ErrorIs(t, err, hosting.ErrUnconfirmed)
				require.NotErrorIs(t, err, hosting.ErrUndeliverable)
				require.ErrorContains(t, err, `account "`+id+`": `)
				require.ErrorContains(t, err, "(the link to the host at a:1 broke 0s ago)")
				require.Equal(t, 2*time.Second, took)

				a.mute.Store(false)
				after(2*time.Second, func() { c.net.Heal("a:1", "p:1") })
				_, err = asked(ns[1], id, number)
				require.NoError(t, err, "what has not been sent waits for the link")

				a.mute.Store(true)
				c.net.Cut("a:1", "p:1")
				time.Sleep(time.Second)
				after(time.Second, func() { c.net.Heal("a:1", "p:1") })
				after(9*time.Second, func() { c.net.Cut("a:1", "p:1") })
				took, err = asked(ns[1], id, number)
				require.ErrorIs(t, err, hosting.ErrUnconfirmed, "it has been sent since")
				require.Equal(t, 9*time.Second, took)
				c.net.Heal("a:1", "p:1")

				time.Sleep(5 * time.Second)
				after(time.Second, ns[0].crash)
				took, err = asked(ns[1], id, number)
				require.ErrorIs(t, err, hosting.ErrUnconfirmed)
				require.Equal(t, time.Second, took)
			})
		})
	}
}

// What an entity of this node has been asked is of no link; nor is what waits for its
// entity to start.
func TestAskOnTheOwnNodeOutlivesLinks(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		a := &clerk{n: ns[0], pause: 3 * time.Second}
		a.start(2)
		ns[1].start(2, sharding.WithProxyOnly())
		c.settled(5*time.Second, ns[0])
		for range 2 { // it is started, and it is active
			after(time.Second, func() { c.net.Cut("a:1", "b:1") })
			took, err := asked(ns[0], idOf(0, 2), 1)
			require.NoError(t, err)
			require.Equal(t, 3*time.Second, took)
			c.net.Heal("a:1", "b:1")
		}
	})
}

// What was asked of a former host may have been forwarded: that the link to it breaks does
// not matter to who waits for the present one.
func TestAskOutlivesTheLinkToAFormerHost(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b", "p")
		a, b := &clerk{n: ns[0], pause: 3 * time.Second}, &clerk{n: ns[1], pause: 3 * time.Second}
		a.start(2)
		ns[2].start(2, sharding.WithProxyOnly())
		c.settled(5*time.Second, ns[0])
		id := idOf(0, 2)
		require.NoError(t, ns[2].region.Tell(id, job{"s", 1})) // it is busy with that when it is to move
		time.Sleep(time.Second)
		go func() {
			time.Sleep(100 * time.Millisecond) // it has been sent
			b.start(2)
			_ = ns[0].region.Drain(context.Background())
			time.Sleep(500 * time.Millisecond) // the proxy sees that it has moved
			c.net.Cut("a:1", "p:1")
		}()
		got, err := sharding.Ask[done](contextFor(time.Minute), ns[2].region, id, job{"s", 2})
		require.NoError(t, err)
		require.Equal(t, "b", got.Node, "the next host answered")
		require.Equal(t, []string{"b", "b"}, []string{owners(ns[2])[0], owners(ns[2])[1]})
	})
}

// What has come back from another node waits here, or goes on from here in custody: a
// break of the link by which it went there first is not its own.
func TestAskThatCameBackOutlivesItsFirstLink(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		for _, n := range ns {
			(&clerk{n: n, pause: 3 * time.Second}).start(2)
		}
		c.settled(5*time.Second, ns...)
		id := idOf(0, 2)
		a, b := ns[0], ns[1]
		if owners(a)[0] == "b" {
			a, b = b, a
		}
		require.NoError(t, b.region.Tell(id, job{"s", 1}))
		require.NoError(t, b.region.Tell(id, job{"s", 2}))
		time.Sleep(time.Second)
		var cut atomic.Bool
		go func() {
			time.Sleep(100 * time.Millisecond) // it has been sent
			_ = a.region.Drain(context.Background())
			time.Sleep(500 * time.Millisecond) // what waited there has come back
			a.region.Undrain()
			_ = b.region.Drain(context.Background())
			time.Sleep(500 * time.Millisecond)
			cut.Store(owners(b)[0] == a.id)
			c.net.Cut("a:1", "b:1")
			time.Sleep(time.Second)
			c.net.Heal("a:1", "b:1")
		}()
		_, err := asked(b, id, 3)
		require.NoError(t, err)
		require.True(t, cut.Load(), "while it was with the first host again")
	})
}

// The host's machine vanishes: its leases run out, and another node may host the shard, before
// the link is found broken. Who asked hears of it all the same, long before its deadline.
func TestAskEndsWhenItsHostVanishes(t *testing.T) {
	for what, others := range map[string]bool{"and nobody hosts": false, "and another node hosts": true} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(c *cluster) {
				a, p := c.node("a"), c.node("p")
				mute := &clerk{n: a}
				mute.start(2)
				p.start(2, sharding.WithProxyOnly())
				c.settled(5*time.Second, a)
				id := idOf(0, 2)
				_, err := asked(p, id, 1)
				require.NoError(t, err)
				mute.mute.Store(true)
				last := 14 * time.Second
				began := time.Now()
				after(time.Second, func() {
					a.clock.Freeze()
					a.store.Partition()
					c.net.Freeze("a:1")
				})
				if others {
					last += time.Minute
					after(3*time.Second, func() { (&clerk{n: c.node("b")}).start(2) })
				}
				after(14*time.Second, func() {
					a.dead = true
					c.net.Kill("a:1")
				})
				_, err = sharding.Ask[done](contextFor(10*time.Minute), p.region, id, formOf(job{"s", 2}))
				require.ErrorIs(t, err, hosting.ErrUnconfirmed)
				require.Equal(t, last, time.Since(began))
			})
		})
	}
}
