package singleton_test

import (
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/singleton"
)

// A candidate that did not answer in time is told that nothing comes of it: it can be
// invited by others, or acquire, and does not wait until its offer is over.
func TestACandidateThatIsPassedOverIsToldSo(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b, d := c.node("a"), c.node("b"), c.node("d")
		ma := a.run("x")
		until(t, time.Second, "hosts", active(ma))
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
func TestALossWhileYieldingIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		release := make(chan struct{})
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if _, ok := ctx.Message().(job); ok {
				<-release
			}
			return false
		}
		ma := a.run("x", singleton.WithStop(func() any { return bye{} }, time.Second), singleton.OnStubborn(singleton.Yield))
		until(t, time.Second, "hosts", active(ma))
		ea := a.events()
		mb := b.run("x")
		time.Sleep(time.Second)
		a.system.Root.Send(ma.PID(), job{Sender: "a", Number: 1})
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
		ma := a.run("x")
		until(t, time.Second, "hosts", active(ma))
		mb := b.run("x")
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
