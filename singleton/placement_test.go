package singleton_test

import (
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/singleton"
)

// A preferred node goes on introducing itself to a host that could not reach it.
func TestAPreferredNodeThatCouldNotBeAskedIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		prefer := singleton.WithPreferred("best")
		other, best := c.node("other"), c.node("best")
		mo := other.run("x", prefer)
		until(t, 2*time.Second, "hosts", active(mo))
		c.net.CutOneWay("other:1", "best:1")
		mb := best.run("x", prefer)
		time.Sleep(30 * time.Second)
		require.True(t, active(mo)())
		c.net.Heal("other:1", "best:1")
		until(t, 10*time.Second, "the best hosts", active(mb))
		c.log.check()
	})
}

// A preferred node that lost the lease takes it back when its child has ended.
func TestAPreferredNodeThatWasBusyIsAskedLater(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		prefer := singleton.WithPreferred("best")
		other, best := c.node("other"), c.node("best")
		end := make(chan struct{})
		c.log.behave = func(n *node, ctx actor.Context, _ *life) bool {
			if _, ok := ctx.Message().(job); ok && n == best {
				<-end
			}
			return false
		}
		mb := best.run("x", prefer)
		until(t, 2*time.Second, "hosts", active(mb))
		mo := other.run("x", prefer)
		best.system.Root.Send(mb.PID(), job{Number: 1})
		best.store.Partition()
		until(t, 2*ttl, "the other hosts", active(mo))
		best.store.Heal()
		time.Sleep(30 * time.Second)
		require.True(t, active(mo)())
		close(end)
		until(t, 5*time.Second, "the best hosts again", active(mb))
		c.log.check()
	})
}

// A node that was invited by one which believed that it leads hands back when
// that turns out to be wrong.
func TestAHostThatDoesNotLeadHandsBack(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		x := newTeam(c, 2)
		x.lead(0)
		x.hosts(0)
		x.leaders[0].Set(x.ns[1].keeper.Owner()) // and n1 goes on believing in n0
		x.hosts(1)
		x.leaders[0].Set(x.ns[0].keeper.Owner())
		x.hosts(0)
		time.Sleep(10 * time.Second)
		require.True(t, active(x.ms[0])())
		require.Len(t, c.log.snapshot(), 3)
		c.log.check()
	})
}

// A leader goes on saying so to a host that could not hear it.
func TestALeaderThatWasNotHeardSaysSoAgain(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		x := newTeam(c, 2)
		x.lead(0)
		x.hosts(0)
		x.leaders[0].Set(x.ns[1].keeper.Owner()) // and n1 goes on believing in n0
		x.hosts(1)
		c.net.CutOneWay("n0:1", "n1:1")
		x.leaders[0].Set(x.ns[0].keeper.Owner())
		time.Sleep(30 * time.Second)
		require.True(t, active(x.ms[1])())
		c.net.Heal("n0:1", "n1:1")
		x.hosts(0)
		c.log.check()
	})
}

// A lease that is lost while a child was asked to stop: what it was asked by does
// not reach it any more, so it is stopped at once.
func TestALossOvertakesAStopMessage(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		end := make(chan struct{})
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			switch ctx.Message().(type) {
			case job:
				<-end
			case bye:
				ctx.Stop(ctx.Self())
			}
			return false
		}
		m := a.hosts("x", singleton.WithStop(func() any { return bye{} }, time.Hour))
		seen := a.events()
		a.system.Root.Send(m.PID(), job{Number: 1})
		time.Sleep(time.Second)
		go func() { _ = m.Stop(t.Context()) }()
		time.Sleep(time.Second)
		a.store.Partition()
		time.Sleep(ttl)
		require.Equal(t, singleton.Stopping, m.Status().Phase)
		require.Len(t, seen.of(singleton.Lost), 1)
		close(end)
		until(t, time.Second, "the child ends", func() bool { return c.log.running() == 0 })
		require.Len(t, seen.of(singleton.NotStopping), 1, "reported from the loss on, and once at a time")
		a.store.Heal()
		until(t, ttl, "the manager ends", func() bool { return ended(m) })
	})
}

// A candidate that has to go while the host's child still stops takes its offer
// back; the lease is free at once, for any node.
func TestACandidateThatHasToGoTakesItsOfferBack(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b, d := c.node("a"), c.node("b"), c.node("d")
		c.log.behave = func(n *node, ctx actor.Context, _ *life) bool {
			if _, ok := ctx.Message().(*actor.Stopping); ok && n == a {
				time.Sleep(2 * time.Second)
			}
			return false
		}
		ma := a.hosts("x")
		mb, md := b.run("x"), d.run("x")
		time.Sleep(time.Second)
		seen := a.events()
		go func() { _ = ma.Stop(t.Context()) }()
		until(t, time.Second, "offered", func() bool { return mb.Status().Phase == singleton.Offered })
		began := time.Now()
		require.NoError(t, mb.Stop(t.Context()))
		require.Less(t, time.Since(began), time.Second)
		until(t, 3*time.Second, "the third hosts", active(md))
		require.Empty(t, seen.of(singleton.HandedOver))
		c.log.check()
	})
}
