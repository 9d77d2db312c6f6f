package singleton_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/singleton"
)

// join makes nodes members of a group, whose list they ask for the next host.
func join(t *testing.T, c *cluster, ns ...*node) {
	for _, n := range ns {
		g, err := membership.Join(t.Context(), n.keeper, "shop")
		require.NoError(t, err)
		c.atEnd(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = g.Leave(ctx)
		})
		transport.Of(n.system).Join(g)
	}
}

// members makes nodes of a group, of which the first hosts x, and the second, or all others, would.
func members(t *testing.T, c *cluster, opts ...singleton.Option) *team {
	ns := c.nodes("a", "b", "c")
	join(t, c, ns...)
	all := &team{cluster: c, ns: ns, sent: map[string]int{}}
	all.ms = append(all.ms, ns[0].hosts("x"), ns[1].run("x"), ns[2].run("x", opts...))
	return all
}

// An answer that takes longer than the pause between two questions counts.
func TestAHostThatIsCutOffBehindSlowLinks(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		all := members(t, c, singleton.WithProxyOnly())
		for _, x := range all.ns {
			for _, y := range all.ns {
				if x != y {
					c.net.SetDelay(x.id+":1", y.id+":1", 150*time.Millisecond)
				}
			}
		}
		all.send()
		time.Sleep(time.Second)
		all.ns[0].store.Partition()
		for range 20 * ttl / time.Second {
			all.send()
			time.Sleep(time.Second)
		}
		require.Zero(t, all.ms[0].Status().Buffered)
	})
}

// The next host dies with the backlog under way to it: that goes to the one after it.
func TestTheNextOfAHostThatIsCutOffDies(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		all := members(t, c)
		c.log.behave = func(n *node, ctx actor.Context, _ *life) bool {
			if _, ok := ctx.Message().(job); ok && n.id == "a" {
				time.Sleep(ttl)
			}
			return false
		}
		a := all.ns[0]
		for i := range 5 {
			a.system.Root.Send(all.ms[0].PID(), job{Sender: "a", Number: i + 1})
		}
		time.Sleep(100 * time.Millisecond)
		a.store.Partition()
		until(t, 3*ttl, "next", func() bool { return active(all.ms[1])() || active(all.ms[2])() })
		next, last := 1, 2
		if active(all.ms[2])() {
			next, last = 2, 1
		}
		at := all.ns[next].id + ":1"
		c.net.SetDelay("a:1", at, 100*time.Millisecond)
		frames := func() (n int) {
			for k, x := range c.net.Kinds() {
				if strings.Contains(k, "Frame") {
					n += x.Messages
				}
			}
			return n
		}
		for range 60_000 {
			if frames() > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		require.NotZero(t, frames())
		c.log.crashed(all.ns[next])
		all.ns[next].crash()
		until(t, 3*ttl, "last", active(all.ms[last]))
		time.Sleep(5 * time.Minute)
		require.Zero(t, all.ms[0].Status().Buffered)
	})
}

// The link to the next host breaks once, and heals.
func TestTheLinkOfAHostThatIsCutOffBreaks(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		all := members(t, c, singleton.WithProxyOnly())
		a := all.ns[0]
		n := 0
		say := func() { n++; a.system.Root.Send(all.ms[0].PID(), job{Sender: "a", Number: n}) }
		say()
		a.store.Partition()
		until(t, 3*ttl, "next", active(all.ms[1]))
		say()
		time.Sleep(5 * time.Second)
		c.net.Cut("a:1", "b:1")
		time.Sleep(time.Second)
		c.net.Heal("a:1", "b:1")
		for range 5 {
			time.Sleep(time.Minute)
			say()
		}
		require.Zero(t, all.ms[0].Status().Buffered)
	})
}

// A host that is cut off from the store loses the singleton, and does not learn of the next host by the
// record. What waits there, and what its node sends, goes to that by the word of other members. A node
// that is no member gets none of it, whatever it answers.
func TestAHostThatIsCutOffFromTheStoreHandsItsMailOn(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		all := members(t, c, singleton.WithProxyOnly())
		a, x := all.ns[0], c.node("x")
		self := &wire.Node{Address: "x:1", Incarnation: x.keeper.Owner().Incarnation}
		say := func(d time.Duration) {
			for range d / (50 * time.Millisecond) {
				all.send()
				for guess := range uint64(4) {
					x.system.Root.Send(all.ms[0].PID(), &wire.MarkerAck{Name: "singleton/x", From: self, Number: guess<<32 | guess, Token: 1 << 40})
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
		say(time.Second)
		a.store.Partition()
		say(2 * ttl)
		require.True(t, active(all.ms[1])())
		time.Sleep(time.Second)
		require.Zero(t, all.ms[0].Status().Buffered)
		all.all()
		got, _ := c.net.Wire("a:1", "x:1")
		require.Zero(t, got, "messages for a node that is no member")
		a.store.Heal()
		until(t, time.Minute, "its member again", func() bool { return len(transport.Of(a.system).Members()) == 2 })
		c.log.check()
	})
}
