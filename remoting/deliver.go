package remoting

import (
	"strings"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// This file delivers what came in. Remote ends the link at the first message that is no
// value of its type, and all that came behind it is lost; here it is lost alone.

// deliver hands a batch to the actors that it is for, in order, as far as what remote must
// hear of itself: that an actor that is watched has ended. It returns that, as a batch of its
// own, and leaves what comes behind it in b; nil if nothing is left.
func (n *Node) deliver(b *batch, who *identity) (forRemote *remote.MessageBatch) {
	for len(b.Envelopes) > 0 {
		e := b.Envelopes[0]
		b.Envelopes = b.Envelopes[1:]
		why, bad := n.wrong(b, e, who)
		var msg any
		if !bad {
			msg, why = n.read(b, e)
		}
		switch msg := msg.(type) {
		case nil:
			n.refuse(b, e, why, who.address)
		case *actor.Terminated:
			target, _ := ends(b.MessageBatch, e)
			return &remote.MessageBatch{TypeNames: []string{b.TypeNames[e.TypeId]}, Targets: []*actor.PID{n.addressee(target)},
				Envelopes: []*remote.MessageEnvelope{{MessageData: e.MessageData, SerializerId: e.SerializerId}}}
		case *actor.Watch:
			if msg.Watcher == nil {
				panic("a watch by nobody") // at which an actor would fail; it ends the stream
			}
			n.signal(b, e, msg)
		case *actor.Unwatch:
			if msg.Watcher != nil { // else there is nothing to end
				n.signal(b, e, msg)
			}
		default:
			n.post(b, e, msg)
		}
	}
	return nil
}

// signal tells an actor who watches it, or no longer does.
func (n *Node) signal(b *batch, e *remote.MessageEnvelope, msg any) {
	target, _ := ends(b.MessageBatch, e)
	outlet.Signal(n.system, n.addressee(target), msg)
}

// post sends a message to the actor that it is for, with its sender and headers. A user's
// mailbox or dispatcher that panics ends no link.
func (n *Node) post(b *batch, e *remote.MessageEnvelope, msg any) {
	target, sender := ends(b.MessageBatch, e)
	if h := e.MessageHeader.GetHeaderData(); sender != nil || h != nil {
		msg = &actor.MessageEnvelope{Header: h, Message: msg, Sender: sender}
	}
	if err := boundary.Contained(func() { n.root.Send(target, msg) }); err != nil {
		n.warn("remoting: a mailbox failed", "target", boundary.Cut(target.Id), "error", err)
	}
}

// undelivered makes dead letters of a batch whose link can't be made. Whoever sent one of its
// messages is told, as remote does.
func (n *Node) undelivered(b *remote.MessageBatch) {
	for _, e := range b.GetEnvelopes() {
		target, sender := ends(b, e)
		if sender != nil {
			outlet.Tell(n.system, sender, &actor.DeadLetterResponse{Target: target})
			continue
		}
		name := b.TypeNames[e.TypeId]
		if msg, err := decode(e, name, typeOf(name)); err == nil {
			outlet.Of(n.system).DeadLetter(target, msg)
		}
	}
}

// read decodes a message; nil, and why, if it is to be refused. The ways of mail past Envelopes tell its
// sender what became of it, as for an Envelope that can't be opened.
func (n *Node) read(b *batch, e *remote.MessageEnvelope) (any, fault) {
	name, typ, count := b.TypeNames[e.TypeId], b.types[e.TypeId].MessageType, &n.stats.UnknownType
	if e.SerializerId != 0 || typ != nil {
		msg, err := decode(e, name, typ)
		if err == nil {
			return msg, 0
		}
		if !strings.HasPrefix(b.Targets[e.Target].Id, actors.FamilyPrefix) {
			return nil, undecodable
		}
		count = &n.stats.Undecodable
	}
	n.count(count)
	return &wire.Unread{Type: name, Payload: e.MessageData}, 0
}

// decode reads a message as remote does. What the code of its type panics with is an error;
// a serializer that does not exist panics, which ends the stream.
func decode(e *remote.MessageEnvelope, typeName string, typ protoreflect.MessageType) (msg any, err error) {
	if e.SerializerId == 0 {
		defer boundary.Contain(&err)
		msg, err = wire.ReadProto(typ, e.MessageData)
	} else {
		msg, err = remote.Deserialize(e.MessageData, typeName, e.SerializerId)
	}
	if s, ok := msg.(remote.RootSerialized); ok && err == nil {
		msg, err = s.Deserialize()
	}
	if msg == nil && err == nil {
		err = wire.ErrUndecodable
	}
	return msg, err
}

// addressee is a target as dead letters have it, which are published later: without the mark, and
// without the number that goes along with mail past Envelopes, which is for its receiver.
func (n *Node) addressee(target *actor.PID) *actor.PID {
	pid := actor.NewPID(target.Address, target.Id)
	if pid.Address == familyAddress {
		pid.Address = n.system.Address()
	}
	if !strings.HasPrefix(pid.Id, actors.FamilyPrefix) {
		pid.RequestId = target.RequestId
	}
	return pid
}

// ends returns for whom a message is, and who sent it. Indexes that point nowhere panic,
// which ends the stream.
func ends(b *remote.MessageBatch, e *remote.MessageEnvelope) (target, sender *actor.PID) {
	target = b.Targets[e.Target]
	if e.TargetRequestId > 0 {
		target = withRequest(target, e.TargetRequestId)
	}
	if e.Sender != 0 {
		if sender = b.Senders[e.Sender-1]; e.SenderRequestId > 0 {
			sender = withRequest(sender, e.SenderRequestId)
		}
	}
	return target, sender
}
