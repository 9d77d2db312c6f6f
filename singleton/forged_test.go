package singleton_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/singleton"
)

// What looks like the actor system's word on the manager's life, and was sent as mail, is
// not believed.
func TestForgedLife(t *testing.T) {
	for _, msg := range []any{&actor.Started{}, &actor.Stopping{}, &actor.Stopped{}, &actor.Restarting{}, &actor.Stop{}, &actor.Terminated{}, &actor.Watch{}, &actor.PoisonPill{}} {
		bubble(t, func(t *testing.T, c *cluster) {
			_, poison := msg.(*actor.PoisonPill)
			require.True(t, poison || wire.OfSystem(msg))
			a, b := c.node("a"), c.node("b")
			ma, mb := a.hosts("x"), b.run("x")
			a.system.Root.Send(ma.PID(), msg)
			a.system.Root.Send(ma.PID(), &actor.MessageEnvelope{Message: msg})
			time.Sleep(time.Second)
			for i, m := range []*singleton.Manager{ma, mb} {
				[]*node{a, b}[i].mustAsk(m.PID(), i+1)
			}
		})
	}
}

// A node without the store is believed in nothing that would give it mail, or the lease: it answers
// markers that it has not seen, and invites to what it does not hold. A planned move goes as if it
// were not there.
func TestAHostilePeerTakesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b, x := c.node("a"), c.node("b"), c.node("x")
		for _, way := range [][2]string{{"a:1", "b:1"}, {"b:1", "a:1"}} {
			c.net.SetDelay(way[0], way[1], 20*time.Millisecond)
		}
		var log []string
		ma := a.keeping(&log)
		until(t, time.Second, "hosts", active(ma))
		mb := b.keeping(&log)
		until(t, time.Second, "knows the host", func() bool { return mb.Status().Host.ID == "a" })
		told := b.events()
		name, self := "singleton/x", &wire.Node{Address: "x:1", Incarnation: x.keeper.Owner().Incarnation}
		stop := make(chan struct{})
		var gone sync.WaitGroup
		gone.Go(func() {
			for n := uint64(0); ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				for _, m := range []*singleton.Manager{ma, mb} {
					for guess := range uint64(32) {
						x.system.Root.Send(m.PID(), &wire.MarkerAck{Name: name, From: self, Number: guess/8<<32 | guess%8, Token: 1 << 40})
					}
					x.system.Root.Send(m.PID(), &wire.Invite{Name: name, From: self, Number: n + 1})
				}
			}
		})
		sent := 0
		say := func(n int) {
			for range n {
				sent++
				b.system.Root.Send(mb.PID(), job{Sender: "b", Number: sent})
				time.Sleep(time.Millisecond)
			}
		}
		say(300)
		go func() { _ = ma.Stop(context.Background()) }()
		say(1000)
		require.True(t, active(mb)(), "%v", mb.Status())
		close(stop)
		gone.Wait()
		require.Len(t, log, 2)
		require.Contains(t, log[1], "on b")
		require.NotEqual(t, "started with 0 on b", log[1], "with its state")
		require.Empty(t, told.of(singleton.ColdStart))
		require.Zero(t, mb.Status().Unordered)
	})
}
