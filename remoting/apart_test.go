package remoting

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/eventstream"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/actors"
)

// knowing is a Node, and what stands for its remote: that does as it is told when a link ends.
func knowing(remotely func()) *Node {
	n := &Node{system: actor.NewActorSystem(LogTo(nil)), events: eventstream.NewEventStream()}
	n.events.Subscribe(n.before)
	n.events.Subscribe(func(e any) {
		if _, ok := e.(*remote.EndpointTerminatedEvent); ok {
			remotely()
		}
	})
	n.events.Subscribe(n.after)
	return n
}

// The end of a link is told once remote knows, or has failed to know: to who watches links, and to
// users.
func TestTheEndOfALinkIsToldOnceRemoteKnows(t *testing.T) {
	for how, c := range map[string]struct {
		remotely func()
		after    time.Duration
	}{
		"it knows after a moment": {func() { time.Sleep(time.Second) }, time.Second},
		"it panics":               {func() { panic("a mailbox") }, 0},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := knowing(c.remotely)
				began := time.Now()
				watched, heard := map[string]time.Duration{}, map[string]time.Duration{}
				actors.WatchLinks(n.system, func(address string) { watched[address] = time.Since(began) })
				n.system.EventStream.Subscribe(func(e any) {
					if e, ok := e.(*remote.EndpointTerminatedEvent); ok {
						heard[e.Address] += time.Since(began)
					}
				})
				n.lost("b:1")
				time.Sleep(time.Hour)
				synctest.Wait()
				want := map[string]time.Duration{"b:1": c.after}
				require.Equal(t, want, watched)
				require.Equal(t, want, heard, "once")
			})
		})
	}
}

// What remote publishes goes on to the users, and they do not hold up remote. Dead letters come
// behind events.
func TestWhatRemotePublishesIsToldToUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := knowing(nil)
		var heard []any
		n.system.EventStream.Subscribe(func(e any) {
			heard = append(heard, e)
			time.Sleep(time.Hour)
		})
		began := time.Now()
		letter := &actor.DeadLetterEvent{PID: actor.NewPID("b:1", "x"), Message: "lost"}
		events := []any{"an event", letter}
		n.events.Publish(&remote.EndpointConnectedEvent{Address: "b:1"}) // before the link is made
		for _, e := range events {
			n.events.Publish(e)
		}
		require.Zero(t, time.Since(began))
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		require.Equal(t, events, heard)
	})
}
