package singleton_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/singleton"
)

// What WithStop's function does keeps no child from being stopped, and no loss from being
// heard of.
func TestAStopMessageThatIsNotMade(t *testing.T) {
	const within = 2 * time.Second
	for name, lost := range map[string]bool{"hangs": false, "hangs, and the lease is lost": true, "panics": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				release := make(chan struct{})
				defer close(release)
				a, b := c.node("a"), c.node("b")
				ma := a.run("x", singleton.WithStop(func() any {
					switch name {
					case "panics":
						panic("a bug")
					}
					<-release
					return bye{}
				}, within))
				until(t, time.Second, "hosts", active(ma))
				mb := b.run("x")
				time.Sleep(time.Second)
				ended := make(chan error, 1)
				go func() { ended <- ma.Stop(context.Background()) }()
				if lost {
					time.Sleep(time.Second)
					a.store.Partition()
					defer a.store.Heal()
					until(t, ttl+time.Second, "the loss is heard of", func() bool { return c.log.snapshot()[0].ctx.Err() != nil })
				}
				until(t, within+10*time.Millisecond, "has stopped", func() bool { return !c.log.snapshot()[0].to.IsZero() })
				until(t, 2*ttl, "hosts", active(mb))
			})
		})
	}
}

// protoactor's mailboxes count a nil that is sent, and look for it for ever.
func TestNilIsADeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		letters := 0
		a.system.EventStream.Subscribe(func(e any) {
			if l, ok := e.(*actor.DeadLetterEvent); ok && l.Message == nil {
				letters++
			}
		})
		m := a.hosts("x")
		a.system.Root.Send(m.PID(), nil)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1, letters)
	})
}
