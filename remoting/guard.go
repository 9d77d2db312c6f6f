package remoting

import (
	"context"
	"fmt"
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
)

// UnknownMessage stands in a dead letter for a message whose type this process
// lacks.
type UnknownMessage struct {
	Type    string
	Payload []byte
}

// guard is the inbound check. It belongs to a configuration and learns its node
// from Start; without one it contains and drops, but tells nobody.
type guard struct{ node atomic.Pointer[Node] }

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
	s := &inbound{ServerStream: ss, guard: g}
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
	broken bool // receiving failed; used by the handler's goroutine only

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
	if rm, ok := m.(*remote.RemoteMessage); ok {
		if b := rm.GetMessageBatch(); b != nil {
			s.guard.check(b)
			s.guard.direct(b)
		}
	}
	return nil
}

// jsonSerializer is the number of the second form in which remote reads messages, and
// never writes them: it takes a minute for 4 MiB that are nested a hundred deep.
const jsonSerializer = 1

// check takes out of b what remote must not see.
func (g *guard) check(b *remote.MessageBatch) {
	n := g.node.Load()
	unknown := map[int32]bool{}
	for i, name := range b.TypeNames {
		if !known(name) {
			unknown[int32(i)] = true
		}
	}
	clean := len(unknown) == 0
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
			n.refuse(b, e, true)
		case n != nil && (b.Targets[e.Target].Address != own || internal(b.Targets[e.Target].Id)):
			n.refuse(b, e, false)
		default:
			kept = append(kept, e)
		}
	}
	b.Envelopes = kept
}

// direct marks the targets that no process is registered for. It comes after check,
// which refuses what is marked so already.
func (g *guard) direct(b *remote.MessageBatch) {
	n := g.node.Load()
	if n == nil {
		return
	}
	own := n.system.Address()
	for _, t := range b.Targets {
		if t.Address == own && strings.HasPrefix(t.Id, direct.Prefix) {
			t.Address = familyAddress
		}
	}
}

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

// refuse makes a dead letter of one message that came in; the sender of a
// request learns of it by protoactor's DeadLetterResponse. Indexes that point
// nowhere panic, which ends the stream.
func (n *Node) refuse(b *remote.MessageBatch, e *remote.MessageEnvelope, unknown bool) {
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
	if unknown {
		n.counters.unknownType.Add(1)
		n.warn("remoting: message of unknown type", "type", fmt.Sprintf("%.128s", typeName), "target", target.Id)
	} else {
		n.counters.misaddressed.Add(1)
		n.warn("remoting: message for another address, or for remote itself, arrived here", "address", target.Address, "own", n.system.Address(), "target", target.Id)
		if m, err := remote.Deserialize(e.MessageData, typeName, e.SerializerId); err == nil {
			msg = m
		}
	}
	if _, ok := msg.(actor.SystemMessage); ok {
		n.system.DeadLetter.SendSystemMessage(target, msg)
		return
	}
	n.system.DeadLetter.SendUserMessage(target, &actor.MessageEnvelope{Message: msg, Sender: sender})
}

func withRequest(pid *actor.PID, id uint32) *actor.PID {
	p := proto.Clone(pid).(*actor.PID)
	p.RequestId = id
	return p
}
