package singleton_test

import (
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
	for _, msg := range []any{&actor.Started{}, &actor.Stopping{}, &actor.Stopped{}, &actor.Restarting{}, &actor.Stop{}, &actor.Terminated{}, &actor.Watch{}} {
		bubble(t, func(t *testing.T, c *cluster) {
			require.True(t, wire.OfSystem(msg))
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
