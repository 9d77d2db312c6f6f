package remoting

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// UnknownMessage stands in a dead letter for a message whose type this process lacks, or
// that is no value of its type.
type UnknownMessage struct {
	Type    string
	Payload []byte
}

// guard is the inbound check. It belongs to a configuration and learns its node
// from Start; without one it contains and drops, but tells nothing.
type guard struct {
	check PeerCheck // nil in plaintext
	node  atomic.Pointer[Node]
}

var errMalformed = status.Error(codes.InvalidArgument, "malformed input")

// contain runs a handler. One that panics ends its call or stream and no more.
func (g *guard) contain(method string, handle func() error) error {
	err, gone := boundary.Get(func() (error, error) { return handle(), nil })
	if gone != nil {
		g.malformed(method, gone)
		return errMalformed
	}
	return err
}

func (g *guard) malformed(method string, err error) {
	if n := g.node.Load(); n != nil {
		n.fault(&n.stats.Malformed, "remoting: malformed input", "method", method, "error", err)
	}
}

// unary guards calls that remote does not implement: its handlers panic.
func (g *guard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	err = g.contain(info.FullMethod, func() (failed error) { resp, failed = handler(ctx, req); return failed })
	return resp, err
}

// stream guards a peer's messages.
func (g *guard) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	s := &inbound{ServerStream: ss, guard: g, who: identify(ss.Context(), g.check)}
	if n := g.node.Load(); n != nil {
		if !n.streams.add(s) {
			return status.Error(codes.Unavailable, "shutting down")
		}
		defer n.streams.remove(s)
	}
	defer s.end()
	err := g.contain(info.FullMethod, func() error { return handler(srv, s) })
	if err != nil && !errors.Is(err, errMalformed) && (!s.broken || badInput(err)) {
		g.malformed(info.FullMethod, err)
	}
	return err
}

// badInput tells what a peer sent from what a connection suffered.
func badInput(err error) bool {
	c := status.Code(err)
	return c == codes.Internal || c == codes.ResourceExhausted || c == codes.Unimplemented
}

// inbound is the stream of one peer.
type inbound struct {
	grpc.ServerStream
	guard  *guard
	broken bool // receiving failed; used by the handler's goroutine only, as are:
	who    identity
	rest   *remote.MessageBatch       // what is yet to be delivered of a batch, and
	types  []protoreflect.MessageType // what its TypeNames stand for

	send  sync.Mutex // a stream takes one sender at a time
	ended bool
}

func (s *inbound) SendMsg(m any) error {
	s.send.Lock()
	defer s.send.Unlock()
	if s.ended {
		return status.Error(codes.Canceled, "stream ended")
	}
	return s.ServerStream.SendMsg(m)
}

func (s *inbound) end() {
	s.send.Lock()
	defer s.send.Unlock()
	s.ended = true
}

func (s *inbound) RecvMsg(m any) error {
	if s.rest != nil {
		s.deliver(m.(*remote.RemoteMessage))
		return nil
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		s.broken = true
		return err
	}
	rm, ok := m.(*remote.RemoteMessage)
	if !ok {
		return nil
	}
	if c := rm.GetConnectRequest().GetServerConnection(); c != nil {
		return s.refusing(s.who.connects(c.Address))
	}
	if b := rm.GetMessageBatch(); b != nil {
		if err := s.refusing(s.who.known()); err != nil {
			return err
		}
		types := s.guard.inspect(b, &s.who)
		if n := s.guard.node.Load(); n != nil {
			n.direct(b)
			s.rest, s.types = b, types
			s.deliver(rm)
		}
	}
	return nil
}

// deliver delivers a batch up to what of it is for remote, and leaves that in rm. The rest
// comes when remote asks for more, so that all is in the order in which it was sent.
func (s *inbound) deliver(rm *remote.RemoteMessage) {
	forRemote := s.guard.node.Load().deliver(s.rest, &s.who, s.types)
	if forRemote == nil {
		forRemote, s.rest, s.types = s.rest, nil, nil // nothing is left of it
	}
	rm.MessageType = &remote.RemoteMessage_MessageBatch{MessageBatch: forRemote}
}

// refusing counts a peer that is not let in.
func (s *inbound) refusing(err error) error {
	if err == nil {
		return nil
	}
	s.broken = true
	if n := s.guard.node.Load(); n != nil {
		n.fault(&n.stats.Forged, "remoting: a peer is not let in", "error", err)
	}
	return err
}

// jsonSerializer is the number of the second form in which remote reads messages, and
// never writes them: it takes a minute for 4 MiB that are nested a hundred deep.
const jsonSerializer = 1

// inspect takes out of b what remote must not see. It returns what the TypeNames stand for, nil
// where this process lacks the type: what is of those, and left, goes to processes that tell its
// sender more.
func (g *guard) inspect(b *remote.MessageBatch, who *identity) (types []protoreflect.MessageType) {
	n := g.node.Load()
	types = make([]protoreflect.MessageType, len(b.TypeNames))
	clean := true
	for i, name := range b.TypeNames {
		types[i] = typeOf(name)
		clean = clean && types[i] != nil && !suspicious(name)
	}
	own := ""
	if n != nil {
		own = n.system.Address()
		for _, t := range b.Targets {
			clean = clean && t.Address == own && !internal(t.Id)
		}
	}
	for _, e := range b.Envelopes {
		clean = clean && e.SerializerId != jsonSerializer
	}
	if clean {
		return types
	}
	kept := b.Envelopes[:0]
	for _, e := range b.Envelopes {
		switch {
		case e.SerializerId == 0 && types[e.TypeId] == nil && n != nil && strings.HasPrefix(b.Targets[e.Target].Id, actors.FamilyPrefix):
			kept = append(kept, e)
		case e.SerializerId == 0 && types[e.TypeId] == nil, e.SerializerId == jsonSerializer:
			n.refuse(b, e, unknownType, who.address)
		case n != nil && (b.Targets[e.Target].Address != own || internal(b.Targets[e.Target].Id)):
			n.refuse(b, e, misaddressed, who.address)
		case n.forbidden(b.TypeNames[e.TypeId], b.Targets[e.Target].Id), suspicious(b.TypeNames[e.TypeId]) && who.forged(b, e):
			n.refuse(b, e, forged, who.address)
		default:
			kept = append(kept, e)
		}
	}
	b.Envelopes = kept
	return types
}

// direct marks the targets, so that resolve finds their processes, and what stands for those
// that there is none of. It comes after inspect, which refuses what is marked so already.
func (n *Node) direct(b *remote.MessageBatch) {
	own := n.system.Address()
	for _, t := range b.Targets {
		if t.Address == own {
			t.Address = familyAddress
		}
	}
}

// resolve is an address resolver, for the targets that direct has marked.
func (n *Node) resolve(pid *actor.PID) (actor.Process, bool) {
	if pid.Address != familyAddress {
		return nil, false
	}
	p, ok := n.families.Resolve(pid.Id)
	if !ok && !strings.HasPrefix(pid.Id, actors.FamilyPrefix) {
		p, ok = n.system.ProcessRegistry.GetLocal(pid.Id)
		// An actor may end before the batch does, and does not look at its PID: that stays
		// marked, so that what comes behind is resolved here again. Others may look at it.
		if _, isActor := p.(*actor.ActorProcess); ok && !isActor {
			pid.Address = n.system.Address()
		}
	}
	if !ok {
		p = absent{n}
	}
	return p, true
}

// absent stands for an actor that mail came in for, and that there was none of.
type absent struct{ n *Node }

// SendUserMessage implements actor.Process.
func (a absent) SendUserMessage(pid *actor.PID, message any) {
	if _, msg, sender := actor.UnwrapEnvelope(message); wire.IsUnread(msg) {
		u := msg.(*wire.Unread)
		unknown := &actor.MessageEnvelope{Message: &UnknownMessage{Type: u.Type, Payload: u.Payload}, Sender: sender}
		outlet.Of(a.n.system).DeadLetter(a.n.addressee(pid), unknown)
		return
	}
	outlet.Tell(a.n.system, a.n.addressee(pid), message) // it may have come meanwhile
}

// SendSystemMessage implements actor.Process: none comes this way.
func (absent) SendSystemMessage(*actor.PID, any) {}

// Stop implements actor.Process.
func (absent) Stop(*actor.PID) {}

// internal reports whether id is that of an actor in which remote keeps a link: what
// it does not expect there breaks the link, whosever that is, and nodes send it
// nothing.
func internal(id string) bool {
	rest, ok := strings.CutPrefix(id, "EndpointSupervisor")
	return ok && (rest == "" || rest[0] == '/')
}

// typeOf returns the type of that name; nil if this process lacks it.
func typeOf(name string) protoreflect.MessageType {
	typ, _ := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	return typ
}

// fault is why a message that came in is refused.
type fault int

const (
	unknownType fault = iota
	undecodable
	misaddressed
	forged
)

// refuse makes a dead letter of one message that came in; the sender of a
// request learns of it by protoactor's DeadLetterResponse. Indexes that point
// nowhere panic, which ends the stream.
func (n *Node) refuse(b *remote.MessageBatch, e *remote.MessageEnvelope, why fault, peer string) {
	if n == nil {
		return
	}
	typeName := b.TypeNames[e.TypeId]
	target, sender := ends(b, e)
	var msg any = &UnknownMessage{Type: typeName, Payload: e.MessageData}
	switch why {
	case unknownType:
		n.fault(&n.stats.UnknownType, "remoting: message of unknown type", "type", boundary.Cut(typeName), "target", boundary.Cut(target.Id))
	case undecodable:
		n.fault(&n.stats.Undecodable, "remoting: message is no value of its type", "type", boundary.Cut(typeName), "target", boundary.Cut(target.Id))
	case misaddressed:
		n.fault(&n.stats.Misaddressed, "remoting: message for another address, or for remote itself, arrived here",
			"address", boundary.Cut(target.Address), "own", n.system.Address(), "target", boundary.Cut(target.Id))
	case forged:
		n.fault(&n.stats.Forged, "remoting: forged message", "type", typeName, "target", boundary.Cut(target.Id), "peer", boundary.Cut(peer))
	}
	if why != unknownType && why != undecodable {
		if m, err := decode(e, typeName, typeOf(typeName)); err == nil {
			msg = m
		}
	}
	if _, ok := msg.(actor.SystemMessage); !ok {
		msg = &actor.MessageEnvelope{Message: msg, Sender: sender}
	}
	outlet.Of(n.system).DeadLetter(n.addressee(target), msg)
}

func withRequest(pid *actor.PID, id uint32) *actor.PID {
	p := proto.Clone(pid).(*actor.PID)
	p.RequestId = id
	return p
}

// This part is what no peer may say, and what only the peer it is about may say.
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
	case interface{ GetWatcher() *actor.PID }:
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
