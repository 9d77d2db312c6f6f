package remoting

import (
	"slices"
	"strings"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// This file is what no peer may say, and what only the peer it is about may say.
//
//	message                                    to our own names   to others
//	actor.Stop                                 refused            refused
//	actor.PoisonPill                           refused            passes
//	actor.Watch, Unwatch, Terminated           with TLS: only in the peer's own name
//	holdfast.wire.v1.* that names its sender     with TLS: only in the peer's own name
//
// A Marker is passed on in the name of its first sender, and so are the senders of
// messages: these two prove nothing.

// ours is how the ids of all processes of this module begin that other nodes know.
const ours = "holdfast/"

// Full names of messages that are looked at.
const (
	wirePrefix  = "holdfast.wire.v1."
	actorPrefix = "actor."
	envelope    = wirePrefix + "Envelope"
	stop        = actorPrefix + "Stop"
	poison      = actorPrefix + "PoisonPill"
)

// suspicious reports whether messages of a type are to be looked at one by one. Mail
// is not.
func suspicious(typeName string) bool {
	return typeName != envelope && (strings.HasPrefix(typeName, wirePrefix) || strings.HasPrefix(typeName, actorPrefix))
}

// forbidden reports whether no node may send messages of a type to an actor.
func (n *Node) forbidden(typeName, id string) bool {
	return typeName == stop || typeName == poison && strings.HasPrefix(id, ours)
}

// forged reports whether a message is in the name of another than the peer. What can't
// be read is left to remote, which ends its stream.
func (id *identity) forged(b *remote.MessageBatch, e *remote.MessageEnvelope) bool {
	if id.check == nil {
		return false
	}
	typ := typeOf(b.TypeNames[e.TypeId])
	if typ == nil {
		return false
	}
	m, err := wire.ReadProto(typ, e.MessageData)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(names(m), func(address string) bool { return !id.is(address) })
}

// names are the addresses by which the sender of a message calls itself.
func names(m proto.Message) []string {
	switch m := m.(type) {
	case *actor.Watch:
		return []string{m.GetWatcher().GetAddress()}
	case *actor.Unwatch:
		return []string{m.GetWatcher().GetAddress()}
	case *actor.Terminated:
		return []string{m.GetWho().GetAddress()}
	case *wire.Marker:
		return nil
	case *wire.Frame:
		all := []string{m.GetFrom().GetAddress()}
		switch w := m.What.(type) {
		case *wire.Frame_State:
			all = append(all, w.State.GetFrom().GetAddress())
		case *wire.Frame_HandedOver:
			all = append(all, w.HandedOver.GetFrom().GetAddress())
		}
		return all
	case interface{ GetFrom() *wire.Node }:
		return []string{m.GetFrom().GetAddress()}
	}
	return nil
}
