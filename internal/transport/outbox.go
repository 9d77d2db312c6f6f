package transport

import (
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// Outbox is what one owner sends through: it finds the channels, and knows which were
// used since they were flushed last. It belongs to its owner, and is used under the
// owner's lock, or on its goroutine, but for Held.
type Outbox struct {
	node  *Node
	owner Owner
	to    string        // the actor on other nodes that mail is for
	limit int           // of one message, in bytes
	lost  *atomic.Int64 // straight mail that is not known to have arrived

	held    atomic.Int64
	address string // of the channel that was used last
	peer    *Peer
	pid     *actor.PID
	touched []*Peer
}

// Init makes an Outbox usable: for mail of owner to the actor called to of other nodes,
// in messages of at most limit bytes.
func (o *Outbox) Init(n *Node, owner Owner, to string, limit int, lost *atomic.Int64) {
	o.node, o.owner, o.to, o.limit, o.lost = n, owner, to, limit, lost
}

// Channel returns the channel to address, for a caller that flushes it.
func (o *Outbox) Channel(address string) *Peer {
	if o.peer == nil || o.address != address || !o.peer.current() {
		o.peer, o.address, o.pid = o.node.To(address), address, actor.NewPID(address, o.to)
	}
	return o.peer
}

// PID returns the actor at address that mail is for.
func (o *Outbox) PID(address string) *actor.PID {
	o.Channel(address)
	return o.pid
}

// touch returns the channel to address, and notes that it has to be flushed.
func (o *Outbox) touch(address string) *Peer {
	o.Channel(address)
	for _, p := range o.touched {
		if p == o.peer {
			return p
		}
	}
	o.touched = append(o.touched, o.peer)
	return o.peer
}

// Room reports whether mail may go to address; if not, the owner hears when it may.
func (o *Outbox) Room(address string) bool {
	p := o.touch(address)
	if p.Room() {
		return true
	}
	p.Wait(o.owner)
	return false
}

// Send queues a message that is not kept. Mail takes room; messages about mail do not. Of
// mail, it returns the number of the link that it goes over.
func (o *Outbox) Send(address string, msg proto.Message) (link uint64) {
	p := o.touch(address)
	if e, ok := msg.(*wire.Envelope); ok {
		return p.Send(o.pid, e, e.Footprint(), o.lost)
	}
	p.Control(o.pid, msg)
	return 0
}

// Link is Node.Link.
func (o *Outbox) Link(address string) uint64 { return o.node.Link(address) }

// Keep queues what the node at address is to take custody of; false if it is too large.
func (o *Outbox) Keep(address string, item any, msg proto.Message) bool {
	f := &wire.Frame{}
	switch m := msg.(type) {
	case *wire.Envelope:
		f.What = &wire.Frame_Envelope{Envelope: m}
	case *wire.Marker:
		f.What = &wire.Frame_Marker{Marker: m}
	case *wire.EntityState:
		f.What = &wire.Frame_State{State: m}
	case *wire.HandedOver:
		f.What = &wire.Frame_HandedOver{HandedOver: m}
	}
	return o.touch(address).Keep(o.owner, item, o.to, f, o.limit)
}

// Recall takes back what is kept for address, if its link is broken.
func (o *Outbox) Recall(address string) []any { return o.touch(address).Recall(o.owner) }

// Leave ends it; under no lock.
func (o *Outbox) Leave() {
	if o.node != nil {
		o.node.Leave(o.owner)
	}
}

// Held counts what no peer has taken custody of yet.
func (o *Outbox) Held() *atomic.Int64 { return &o.held }

// Touched returns the channels that were used since it was called last: each has to be
// flushed, under no lock.
func (o *Outbox) Touched() []*Peer {
	t := o.touched
	o.touched = nil
	return t
}
