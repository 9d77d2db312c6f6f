package remoting

import (
	"context"
	"fmt"
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

	"github.com/holdfast-go/holdfast/internal/direct"
	"github.com/holdfast-go/holdfast/internal/outside"
	"github.com/holdfast-go/holdfast/internal/quiet"
)

// UnknownMessage stands in a dead letter for a message whose type this process
// lacks.
type UnknownMessage struct {
	Type    string
	Payload []byte
}

// guard is the inbound check. It belongs to a configuration and learns its node
// from Start; without one it contains and drops, but tells nobody.
type guard struct {
	check PeerCheck // nil in plaintext
	node  atomic.Pointer[Node]
}

var errMalformed = status.Error(codes.InvalidArgument, "malformed input")

// contained is deferred around a handler.
func (g *guard) contained(method string, err *error) {
	if r := recover(); r != nil {
		g.malformed(method, fmt.Errorf("panic: %v", r))
		*err = errMalformed
	}
}

func (g *guard) malformed(method string, err error) {
	if n := g.node.Load(); n != nil {
		n.counters.malformed.Add(1)
		n.warn("remoting: malformed input", "method", method, "error", err)
	}
}

// unary guards calls that remote does not implement: its handlers panic.
func (g *guard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer g.contained(info.FullMethod, &err)
	return handler(ctx, req)
}

// stream guards a peer's messages.
func (g *guard) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	s := &inbound{ServerStream: ss, guard: g, who: identify(ss.Context(), g.check)}
	if n := g.node.Load(); n != nil {
		if !n.streams.add(s) {
			return status.Error(codes.Unavailable, "shutting down")
		}
		defer n.streams.remove(s)
	}
	defer s.end()
	defer g.contained(info.FullMethod, &err)
	err = handler(srv, s)
	if err != nil && (!s.broken || badInput(err)) {
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
	broken bool // receiving failed; used by the handler's goroutine only, as is:
	who    identity

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
		s.guard.inspect(b, &s.who)
		s.guard.direct(b)
	}
	return nil
}

// refusing counts a peer that is not let in.
func (s *inbound) refusing(err error) error {
	if err == nil {
		return nil
	}
	s.broken = true
	if n := s.guard.node.Load(); n != nil {
		n.counters.forged.Add(1)
		n.warn("remoting: a peer is not let in", "error", err)
	}
	return err
}

// jsonSerializer is the number of the second form in which remote reads messages, and
// never writes them: it takes a minute for 4 MiB that are nested a hundred deep.
const jsonSerializer = 1

// inspect takes out of b what remote must not see.
func (g *guard) inspect(b *remote.MessageBatch, who *identity) {
	n := g.node.Load()
	var unknown, looked map[int32]bool
	mark := func(m map[int32]bool, i int) map[int32]bool {
		if m == nil {
			m = map[int32]bool{}
		}
		m[int32(i)] = true
		return m
	}
	for i, name := range b.TypeNames {
		switch {
		case !known(name):
			unknown = mark(unknown, i)
		case suspicious(name):
			looked = mark(looked, i)
		}
	}
	clean := len(unknown)+len(looked) == 0
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
		return
	}
	kept := b.Envelopes[:0]
	for _, e := range b.Envelopes {
		switch {
		case e.SerializerId == 0 && unknown[e.TypeId], e.SerializerId == jsonSerializer:
			n.refuse(b, e, unknownType, who.address)
		case n != nil && (b.Targets[e.Target].Address != own || internal(b.Targets[e.Target].Id)):
			n.refuse(b, e, misaddressed, who.address)
		case n.forbidden(b.TypeNames[e.TypeId], b.Targets[e.Target].Id), looked[e.TypeId] && who.forged(b, e):
			n.refuse(b, e, forged, who.address)
		default:
			kept = append(kept, e)
		}
	}
	b.Envelopes = kept
}

// direct marks the targets that no process is registered for. It comes after check,
// which refuses what is marked so already. Batches with messages of protoactor's own say
// who watches whom: there remote must see the address.
func (g *guard) direct(b *remote.MessageBatch) {
	n := g.node.Load()
	if n == nil {
		return
	}
	own := n.system.Address()
	mail := !slices.ContainsFunc(b.TypeNames, func(name string) bool { return strings.HasPrefix(name, actorPrefix) })
	for _, t := range b.Targets {
		if t.Address == own && (strings.HasPrefix(t.Id, direct.Prefix) || mail && !n.registered(t.Id)) {
			t.Address = familyAddress
		}
	}
}

func (n *Node) registered(id string) bool {
	_, ok := n.system.ProcessRegistry.GetLocal(id)
	return ok
}

// absent stands for an actor that mail came in for, and that there was none of. What its
// dead letters' subscribers do must not end the stream that it came on.
type absent struct{ n *Node }

// SendUserMessage implements actor.Process.
func (a absent) SendUserMessage(pid *actor.PID, message any) {
	pid = withRequest(pid, pid.RequestId)
	pid.Address = a.n.system.Address()
	outside.Tell(a.n.system, pid, message) // it may have come meanwhile
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

func known(name string) bool {
	_, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	return err == nil
}

// fault is why a message that came in is refused.
type fault int

const (
	unknownType fault = iota
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
	target := withRequest(b.Targets[e.Target], e.TargetRequestId)
	var sender *actor.PID
	if e.Sender > 0 {
		sender = withRequest(b.Senders[e.Sender-1], e.SenderRequestId)
	}
	var msg any = &UnknownMessage{Type: typeName, Payload: e.MessageData}
	switch why {
	case unknownType:
		n.counters.unknownType.Add(1)
		n.warn("remoting: message of unknown type", "type", quiet.Cut(typeName), "target", quiet.Cut(target.Id))
	case misaddressed:
		n.counters.misaddressed.Add(1)
		n.warn("remoting: message for another address, or for remote itself, arrived here", "address", quiet.Cut(target.Address), "own", n.system.Address(), "target", quiet.Cut(target.Id))
	case forged:
		n.counters.forged.Add(1)
		n.warn("remoting: forged message", "type", typeName, "target", quiet.Cut(target.Id), "peer", quiet.Cut(peer))
	}
	if why != unknownType {
		if m, err := remote.Deserialize(e.MessageData, typeName, e.SerializerId); err == nil {
			msg = m
		}
	}
	if _, ok := msg.(actor.SystemMessage); !ok {
		msg = &actor.MessageEnvelope{Message: msg, Sender: sender}
	}
	outside.Of(n.system).DeadLetter(target, msg)
}

func withRequest(pid *actor.PID, id uint32) *actor.PID {
	p := proto.Clone(pid).(*actor.PID)
	p.RequestId = id
	return p
}
