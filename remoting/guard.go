package remoting

import (
	"context"
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

// guard is the inbound check. It belongs to a configuration and learns its node from Start.
type guard struct {
	check PeerCheck // nil in plaintext
	node  atomic.Pointer[Node]
}

var (
	errMalformed  = status.Error(codes.InvalidArgument, "malformed input")
	errNotStarted = status.Error(codes.Unavailable, "the configuration was not given to remoting.Start")
)

// contain runs a handler. One that panics ends its call or stream and no more.
func (g *guard) contain(method string, handle func(n *Node) error) error {
	n := g.node.Load()
	if n == nil {
		return errNotStarted
	}
	err, gone := boundary.Get(func() (error, error) { return handle(n), nil })
	if gone != nil {
		n.malformed(method, gone)
		return errMalformed
	}
	return err
}

func (n *Node) malformed(method string, err error) {
	n.fault(&n.stats.Malformed, "remoting: malformed input", "method", method, "error", err)
}

// unary guards calls that remote does not implement: its handlers panic.
func (g *guard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	err = g.contain(info.FullMethod, func(*Node) (failed error) { resp, failed = handler(ctx, req); return failed })
	return resp, err
}

// stream guards a peer's messages.
func (g *guard) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return g.contain(info.FullMethod, func(n *Node) error {
		s := &inbound{ServerStream: ss, node: n, who: identify(ss.Context(), g.check)}
		if !n.exit.pass(func() { n.streams.Add(1); n.open.Store(s, nil) }) {
			return status.Error(codes.Unavailable, "shutting down")
		}
		defer n.streams.Done()
		defer n.open.Delete(s)
		defer s.end()
		err := handler(srv, s)
		if err != nil && (!s.broken || badInput(err)) {
			n.malformed(info.FullMethod, err)
		}
		return err
	})
}

// badInput tells what a peer sent from what a connection suffered.
func badInput(err error) bool {
	c := status.Code(err)
	return c == codes.Internal || c == codes.ResourceExhausted || c == codes.Unimplemented
}

// inbound is the stream of one peer.
type inbound struct {
	grpc.ServerStream
	node   *Node
	broken bool // receiving failed; used by the handler's goroutine only, as are:
	who    identity
	rest   *batch // what is yet to be delivered

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
		s.rest = s.node.look(b)
		s.deliver(rm)
	}
	return nil
}

// deliver delivers a batch up to what of it is for remote, and leaves that in rm. The rest
// comes when remote asks for more, so that all is in the order in which it was sent.
func (s *inbound) deliver(rm *remote.RemoteMessage) {
	forRemote := s.node.deliver(s.rest, &s.who)
	if forRemote == nil {
		forRemote, s.rest = s.rest.MessageBatch, nil // nothing is left of it
	}
	rm.MessageType = &remote.RemoteMessage_MessageBatch{MessageBatch: forRemote}
}

// refusing counts a peer that is not let in.
func (s *inbound) refusing(err error) error {
	if err != nil {
		s.broken = true
		s.node.fault(&s.node.stats.Forged, "remoting: a peer is not let in", "error", err)
	}
	return err
}

// jsonSerializer is the number of the second form in which remote reads messages, and
// never writes them: it takes a minute for 4 MiB that are nested a hundred deep.
const jsonSerializer = 1

// batch is a batch that came in, and what is known of its types and targets.
type batch struct {
	*remote.MessageBatch
	types []messageType // what the TypeNames stand for
	here  []bool        // which targets may be actors of this node
}

type messageType struct {
	protoreflect.MessageType      // nil: this process lacks it
	looked                   bool // messages of it are looked at one by one
}

// look finds out what a batch is about. It marks the targets, so that resolve finds their processes,
// and what stands for those that there is none of; one that is marked so already is not here.
func (n *Node) look(m *remote.MessageBatch) *batch {
	b := &batch{m, make([]messageType, len(m.TypeNames)), make([]bool, len(m.Targets))}
	for i, name := range m.TypeNames {
		b.types[i] = messageType{typeOf(name), suspicious(name)}
	}
	own := n.system.Address()
	for i, t := range m.Targets {
		if b.here[i] = t.Address == own && !internal(t.Id); t.Address == own {
			t.Address = familyAddress
		}
	}
	return b
}

// wrong finds why a message must reach no actor.
func (n *Node) wrong(b *batch, e *remote.MessageEnvelope, who *identity) (why fault, bad bool) {
	typ, id := b.types[e.TypeId], b.Targets[e.Target].Id
	switch {
	case e.SerializerId == jsonSerializer, e.SerializerId == 0 && typ.MessageType == nil && !strings.HasPrefix(id, actors.FamilyPrefix):
		return unknownType, true
	case !b.here[e.Target]:
		return misaddressed, true
	case typ.looked && (forbidden(b.TypeNames[e.TypeId], id) || who.forged(b, e)):
		return forged, true
	}
	return 0, false
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
func (n *Node) refuse(b *batch, e *remote.MessageEnvelope, why fault, peer string) {
	typeName := b.TypeNames[e.TypeId]
	target, sender := ends(b.MessageBatch, e)
	of := []struct {
		count *uint64
		text  string
	}{
		unknownType:  {&n.stats.UnknownType, "message of unknown type"},
		undecodable:  {&n.stats.Undecodable, "message is no value of its type"},
		misaddressed: {&n.stats.Misaddressed, "message for another address, or for remote itself, arrived here"},
		forged:       {&n.stats.Forged, "forged message"},
	}[why]
	n.fault(of.count, "remoting: "+of.text, "type", boundary.Cut(typeName), "target", boundary.Cut(target.Id),
		"address", boundary.Cut(target.Address), "own", n.system.Address(), "peer", boundary.Cut(peer))
	var msg any = &UnknownMessage{Type: typeName, Payload: e.MessageData}
	if why != unknownType && why != undecodable {
		if m, err := decode(e, typeName, b.types[e.TypeId].MessageType); err == nil {
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
func forbidden(typeName, id string) bool {
	return typeName == stop || typeName == poison && strings.HasPrefix(id, ours)
}

// forged reports whether a message is in the name of another than the peer. What can't
// be read is left to remote, which ends its stream.
func (id *identity) forged(b *batch, e *remote.MessageEnvelope) bool {
	typ := b.types[e.TypeId].MessageType
	if id.check == nil || typ == nil {
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
