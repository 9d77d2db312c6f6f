package singleton_test

import (
	"context"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/singleton"
)

// mute has jobs on n never be answered.
func (c *cluster) mute(n *node) {
	c.log.behave = func(on *node, ctx actor.Context, _ *life) bool {
		_, is := ctx.Message().(job)
		return is && on == n
	}
}

// A proxy that does not follow who hosts, but has to look it up each time, hears of the
// break though it had forgotten the host.
func TestAskFailsWhenItsLinkBreaksWithoutADirectory(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, p := c.node("a"), c.node("p")
		a.hosts("x")
		h, err := p.keeper.Lease("singleton/x")
		require.NoError(t, err)
		mp := p.run("x", singleton.WithLease(h), singleton.WithProxyOnly())
		p.mustAsk(mp.PID(), 1)
		c.mute(a)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		began := time.Now()
		go func() { time.Sleep(5 * time.Second); c.net.Cut("a:1", "p:1") }()
		_, err = singleton.Ask[done](ctx, mp, job{"x", 2})
		require.ErrorIs(t, err, hosting.ErrUnconfirmed)
		require.Equal(t, 5*time.Second, time.Since(began))
	})
}

// The host's machine vanishes: its lease runs out, and another node may host, before the
// link is found broken. Who asked hears of it all the same, long before its deadline.
func TestAskEndsWhenItsHostVanishes(t *testing.T) {
	for what, others := range map[string]bool{"and nobody hosts": false, "and another node hosts": true} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				a, p := c.node("a"), c.node("p")
				a.hosts("x")
				mp := p.run("x", singleton.WithProxyOnly())
				p.mustAsk(mp.PID(), 1)
				c.mute(a)
				last := 14 * time.Second
				if others {
					c.node("b").run("x")
					last += time.Minute
				}
				began := time.Now()
				go func() {
					time.Sleep(time.Second)
					a.clock.Freeze()
					a.store.Partition()
					c.net.Freeze("a:1")
					time.Sleep(13 * time.Second)
					c.net.Kill("a:1")
				}()
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
				defer cancel()
				_, err := singleton.Ask[done](ctx, mp, job{"x", 2})
				require.ErrorIs(t, err, hosting.ErrUnconfirmed)
				require.Equal(t, last, time.Since(began))
			})
		})
	}
}

// The link to the host falls silent, and nothing says that it broke. Who asked over it hears of
// it when it counts as broken, without a deadline.
func TestAskFailsOverALinkThatIsSilent(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, p := c.node("a"), c.node("p")
		a.hosts("x")
		mp := p.run("x", singleton.WithProxyOnly())
		p.mustAsk(mp.PID(), 1)
		c.mute(a)
		c.net.Stall("a:1", "p:1")
		c.net.Stall("p:1", "a:1")
		began := time.Now()
		_, err := singleton.Ask[done](context.Background(), mp, job{"x", 2})
		require.ErrorIs(t, err, hosting.ErrUnconfirmed)
		require.Less(t, time.Since(began), 20*time.Second)
		require.NotZero(t, mp.Status().Unconfirmed)
		c.net.Unstall("a:1", "p:1")
		c.net.Unstall("p:1", "a:1")
	})
}

// A sender middleware panics while a question is sent to the host, for which it may have been
// sent, or not: who asked is told so, and it is counted.
func TestAskFailsIfItsSendPanics(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, p := c.node("a"), c.node("p")
		a.hosts("x")
		mp := p.run("x", singleton.WithProxyOnly())
		p.mustAsk(mp.PID(), 1)
		panics := true
		p.system.Root.WithSenderMiddleware(func(next actor.SenderFunc) actor.SenderFunc {
			return func(c actor.SenderContext, to *actor.PID, e *actor.MessageEnvelope) {
				if w, ok := e.Message.(*wire.Envelope); ok && panics && w.Name == "singleton/x" {
					panics = false
					panic("a middleware's bug")
				}
				next(c, to, e)
			}
		})
		_, err := singleton.Ask[done](context.Background(), mp, job{"x", 2})
		require.ErrorIs(t, err, hosting.ErrUnconfirmed)
		require.EqualValues(t, 1, mp.Status().Unconfirmed)
		p.mustAsk(mp.PID(), 3)
	})
}
