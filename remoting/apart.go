package remoting

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/outlet"
)

// This file keeps what users do with their actor system apart from what remote does with it.
// Remote hears of its own links by the EventStream, and publishes there while it makes them: a
// subscriber of users that panics or is slow would leave a dead link in use, or keep a link from
// being made. And a middleware of users for what Root sends would wrap what remote tells its own
// actors, which they can't read.

// apart is the actor system as remote is to have it, with an EventStream and a Root of its own.
// What is published on that goes on to the users.
func (n *Node) apart() *actor.ActorSystem {
	inner := *n.system
	inner.EventStream, inner.Root = n.events, n.root
	return &inner
}

// before is a subscriber that comes before remote itself.
func (n *Node) before(event any) {
	if e, ok := event.(*remote.EndpointTerminatedEvent); ok {
		n.links.told(e.Address)
		known := make(chan struct{})
		n.endings.Store(e, known)
		go n.ended(e, known)
	}
}

// after is a subscriber that comes after remote itself.
func (n *Node) after(event any) {
	e, ok := event.(*remote.EndpointTerminatedEvent)
	if !ok {
		outlet.Of(n.system).Publish(event)
	} else if known, ok := n.endings.LoadAndDelete(e); ok {
		close(known.(chan struct{}))
	}
}

// knowsWithin is how long remote has to take up that a link has ended.
const knowsWithin = 100 * time.Millisecond

// ended tells of a link that ended, once remote knows, so that what is sent next makes a new one.
// Remote may not come to know: a mailbox of users that it tells may panic.
func (n *Node) ended(e *remote.EndpointTerminatedEvent, known <-chan struct{}) {
	patience := time.NewTimer(knowsWithin)
	defer patience.Stop()
	select {
	case <-known:
	case <-patience.C:
		n.endings.Delete(e)
	}
	outlet.Of(n.system).Do(actors.LinkBroke(n.system, e.Address))
}
