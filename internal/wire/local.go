package wire

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/lease"
)

// NodeOf is a lease's owner as messages name it.
func NodeOf(o lease.Owner) *Node { return &Node{Address: o.Address, Incarnation: o.Incarnation} }

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
