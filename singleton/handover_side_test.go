package singleton_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// A candidate that did not answer in time is told that nothing comes of it: it can be
// invited by others, or acquire, and does not wait until its offer is over.
func TestACandidateHearsThatItIsPassedOver(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b, d := c.node("a"), c.node("b"), c.node("d")
		ma := a.hosts("x")
		mb, md := b.run("x"), d.run("x")
		time.Sleep(time.Second)
		c.net.SetDelay("b:1", "a:1", 30*time.Second)
		go func() { _ = ma.Stop(t.Context()) }()
		until(t, time.Second, "offers", func() bool { return mb.Status().Phase == singleton.Offered })
		until(t, 1500*time.Millisecond, "the other hosts", active(md))
		require.Equal(t, singleton.Standby, mb.Status().Phase)
		c.net.SetDelay("b:1", "a:1", 0)
	})
}

// A lease that is lost while its child is shut off, and waited for, is told as any other.
func TestALossWhileYieldingIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		release := make(chan struct{})
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if _, ok := ctx.Message().(job); ok {
				<-release
			}
			return false
		}
		ma := a.hosts("x", singleton.WithStop(func() any { return bye{} }, time.Second), singleton.WithOverdue(hosting.ReleaseAfterTTL))
		ea := a.events()
		mb := b.run("x")
		time.Sleep(time.Second)
		a.system.Root.Send(ma.PID(), job{Sender: "a", Number: 1})
		synctest.Wait() // the child has taken it
		go func() { _ = ma.Stop(t.Context()) }()
		until(t, 2*time.Second, "yields", func() bool { return ma.Status().Phase == singleton.Yielding })
		a.store.Partition()
		until(t, 2*ttl, "the other hosts", active(mb))
		require.Len(t, ea.of(singleton.Lost), 1)
		require.Empty(t, ea.of(singleton.Yielded))
		a.store.Heal()
		close(release)
		<-ma.Done()
	})
}

// A former host that others sent mail to goes on forwarding for as long as one of shards.
func TestAFormerHostForwardsForTheQuietPeriod(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		ma, mb := a.hosts("x"), b.run("x")
		time.Sleep(time.Second)
		b.mustAsk(mb.PID(), 1)
		go func() { _ = ma.Stop(t.Context()) }()
		until(t, 2*time.Second, "the other hosts", active(mb))
		began := time.Now()
		<-ma.Done()
		require.GreaterOrEqual(t, time.Since(began), handover.QuietPeriod-100*time.Millisecond)
		require.Less(t, time.Since(began), 2*handover.QuietPeriod)
	})
}

// A candidate whose invitation was called off while its offer was being made takes the name
// as soon as that is free.
func TestACandidateCalledOffEarlyTakesAFreeLease(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if _, ok := ctx.Message().(job); ok {
				panic("the child fails")
			}
			return false
		}
		ma, mb := a.hosts("x"), b.run("x")
		time.Sleep(time.Second)
		rule := func(f faultstore.Fault, ops ...faultstore.Op) {
			b.store.SetRule(faultstore.On(f, ops...))
		}
		rule(faultstore.Fault{Kind: faultstore.Drop}, faultstore.Renew, faultstore.OpenSession)
		time.Sleep(2 * ttl)
		rule(faultstore.Fault{Kind: faultstore.Delay, Delay: 300 * time.Millisecond}, faultstore.OpenSession)
		go func() { _ = ma.Stop(t.Context()) }()
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, singleton.Offering, mb.Status().Phase)
		a.system.Root.Send(ma.PID(), job{Sender: "a", Number: 1})
		until(t, 2*time.Second, "the other hosts", active(mb))
	})
}

// Nothing is handed over to a node whose link broke and that is not heard from since.
func TestNothingIsHandedOverToANodeThatDiedMeanwhile(t *testing.T) {
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
		go func() { _ = ma.Stop(t.Context()) }()
		until(t, time.Second, "offers", func() bool { return mb.Status().Phase == singleton.Offered })
		time.Sleep(time.Second)
		b.crash()
		until(t, 4*time.Second, "the third hosts", active(md))
	})
}
