package remoting

import (
	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/outlet"
)

// This file gives remote an EventStream and a Root of its own. Remote hears of its own links by the
// EventStream: a user's subscriber that panics or is slow would leave a dead link in use. And a
// user's middleware for what Root sends would wrap what remote sends to its own actors.

// apart is the actor system that remote gets. What is published on its EventStream goes on to the
// users'.
func (n *Node) apart() *actor.ActorSystem {
	inner := *n.system
	inner.EventStream, inner.Root = n.events, n.root
	return &inner
}

// before is a subscriber that comes before remote itself.
func (n *Node) before(event any) {
	if e, ok := event.(*remote.EndpointTerminatedEvent); ok {
		n.links.told(e.Address)
	}
}

// after is a subscriber that comes after remote itself: what is sent now makes a new link.
func (n *Node) after(event any) {
	if e, ok := event.(*remote.EndpointTerminatedEvent); ok {
		n.ended(e.Address)
	} else {
		outlet.Of(n.system).Publish(event)
	}
}

// ended publishes that the link to address ended.
func (n *Node) ended(address string) { outlet.Of(n.system).Do(actors.LinkBroke(n.system, address)) }
