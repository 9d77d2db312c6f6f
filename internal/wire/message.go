package wire

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/store"
)

// NodeOf is a lease's owner as messages name it.
func NodeOf(o lease.Owner) *Node { return &Node{Address: o.Address, Incarnation: o.Incarnation} }

// Others are the members but the node at address.
func Others(s membership.Snapshot, address string) (others []*Node) {
	for _, m := range s.Members {
		if m.Address != "" && m.Address != address {
			others = append(others, NodeOf(m.Owner()))
		}
	}
	return others
}

// Is reports whether n and o are the same life at the same address. What is said in the
// name of a life from another address is not that life's.
func (n *Node) Is(o *Node) bool {
	return n.GetIncarnation() == o.GetIncarnation() && n.GetAddress() == o.GetAddress()
}

// TypeName names the type of msg for people.
func TypeName(msg any) string {
	if m, ok := msg.(proto.Message); ok {
		return string(proto.MessageName(m))
	}
	return fmt.Sprintf("%T", msg)
}

// Local is a message as actors of this node get it: bare if there is nothing that goes
// with it.
func Local(msg any, sender *actor.PID, headers map[string]string) any {
	if sender == nil && len(headers) == 0 {
		return msg
	}
	return &actor.MessageEnvelope{Message: msg, Sender: sender, Header: headers}
}

// AddressOf returns pid as it travels; nil for nil.
func AddressOf(pid *actor.PID) *Address {
	if pid == nil {
		return nil
	}
	return &Address{Address: pid.Address, Id: pid.Id, RequestId: pid.RequestId}
}

// PID returns a new PID of that address, bound to no actor system yet; nil for
// nil.
func (x *Address) PID() *actor.PID {
	if x == nil {
		return nil
	}
	return &actor.PID{Address: x.Address, Id: x.Id, RequestId: x.RequestId}
}

// OfSystem reports whether msg is one by which an actor learns of its own life, or of
// another's, from its actor system: as mail it would be believed.
func OfSystem(msg any) bool {
	switch msg.(type) {
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Restart, *actor.Stop, *actor.Failure,
		*actor.Watch, *actor.Unwatch, *actor.Terminated, *actor.ReceiveTimeout:
		return true
	}
	return false
}

var _ hosting.Undeliverable = (*Nack)(nil)

// Notice implements hosting.Undeliverable. The reasons have the same numbers there.
func (n *Nack) Notice() hosting.Notice {
	return hosting.Notice{Reason: hosting.Reason(n.GetReason()), Name: n.GetName(), Key: n.GetKey(), Type: n.GetType(), Detail: n.GetDetail()}
}

// OfferOf is the answer of from to invitation number: o.
func OfferOf(o lease.Offer, from *Node, number uint64) *Offer {
	return &Offer{Name: o.Name, From: from, Number: number, Id: o.Owner.ID,
		Session: int64(o.Session), Ttl: int64(o.TTL), Nonce: o.Nonce, Lifetime: int64(o.Lifetime)}
}

// Lease is what OfferOf was made of.
func (x *Offer) Lease() lease.Offer {
	return lease.Offer{Name: x.Name, Owner: lease.Owner{ID: x.Id, Incarnation: x.From.GetIncarnation(), Address: x.From.GetAddress()},
		Session: store.SessionID(x.Session), TTL: time.Duration(x.Ttl), Nonce: x.Nonce, Lifetime: time.Duration(x.Lifetime)}
}

// Fits reports whether the names by which the sender of one of this package's
// messages calls itself are as long as names may be: store.MaxName bytes each.
func Fits(msg any) bool {
	m, ok := msg.(interface{ GetFrom() *Node })
	if !ok {
		return true
	}
	n, id := m.GetFrom(), ""
	if m, ok := msg.(interface{ GetId() string }); ok {
		id = m.GetId()
	}
	return max(len(n.GetAddress()), len(n.GetIncarnation()), len(id)) <= store.MaxName
}
