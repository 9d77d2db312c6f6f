package remoting

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/outlet"
)

// link is a stream to a peer, over which that says only that it has gone. Remote acts on it
// on a goroutine that nothing contains, and may make dead letters, whose subscribers would
// end the process if they panic. So it is done here.
type link struct {
	grpc.ClientStream
	node      *Node
	address   string
	connected bool // there was an answer; from then on remote has a goroutine that receives
}

// links are those whose end has not been published. Remote knows a link by its address
// alone: who told of the end of one that has been given up would end the one that follows.
type links struct {
	mu   sync.Mutex
	open map[*link]struct{}
}

func (s *links) add(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*link]struct{}{}
	}
	s.open[l] = struct{}{}
}

// remove returns whether it was there: its end was not published yet.
func (s *links) remove(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.open[l]
	delete(s.open, l)
	return ok
}

// told is called before remote hears that the link to address ended.
func (s *links) told(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.open {
		if l.address == address {
			delete(s.open, l)
		}
	}
}

// follow makes the link of a stream that is opened. It may be given up meanwhile.
func (g *guard) follow(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	n := g.node.Load()
	if n == nil {
		return open(ctx, desc, cc, method, opts...)
	}
	l := &link{node: n, address: cc.Target()}
	n.links.add(l)
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		n.links.remove(l)
		return nil, err
	}
	l.ClientStream = s
	return l, nil
}

// SendMsg sends. Where the first message can't be, remote does not receive.
func (l *link) SendMsg(m any) error {
	err := l.ClientStream.SendMsg(m)
	if err != nil && !l.connected {
		l.node.links.remove(l)
	}
	return err
}

// RecvMsg returns the answer to the first message; then it ends when the link has.
func (l *link) RecvMsg(m any) error {
	if !l.connected {
		err := l.ClientStream.RecvMsg(m)
		if l.connected = err == nil; err != nil {
			l.node.links.remove(l)
		}
		return err
	}
	for {
		err := l.ClientStream.RecvMsg(m)
		if l.node.links.remove(l) {
			l.node.lost(l.address) // before a logger is called, which may not return
			if err != nil && !errors.Is(err, io.EOF) {
				l.node.warn("remoting: the link broke", "address", l.address, "error", err)
			}
		}
		if err != nil {
			return io.EOF
		}
	}
}

// lost has remote give up the link to address, and all told that it is not to be used any
// more: it broke, or the peer asked for it.
func (n *Node) lost(address string) {
	if err := boundary.Contained(func() { n.events.Publish(&remote.EndpointTerminatedEvent{Address: address}) }); err != nil {
		n.warn("remoting: a link's end was not taken up", "error", err)
		n.ended(address)
	}
}

// streams is the set of open inbound streams.
type streams struct {
	mu     sync.Mutex
	open   map[*inbound]struct{}
	closed bool
	idle   chan struct{} // closed once closed is set and none is open
}

func newStreams() *streams {
	return &streams{open: map[*inbound]struct{}{}, idle: make(chan struct{})}
}

func (s *streams) add(in *inbound) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.open[in] = struct{}{}
	return true
}

func (s *streams) remove(in *inbound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, in)
	if s.closed && len(s.open) == 0 {
		close(s.idle)
	}
}

// leave lets no stream in any more and tells the peers of open ones to hang up.
// The channel is closed when all have.
func (s *streams) leave() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if len(s.open) == 0 {
		close(s.idle)
	}
	for in := range s.open {
		// A peer that reads nothing blocks this until its connection is closed.
		go func() {
			_ = in.SendMsg(&remote.RemoteMessage{MessageType: &remote.RemoteMessage_DisconnectRequest{
				DisconnectRequest: &remote.DisconnectRequest{},
			}})
		}()
	}
	return s.idle
}

// This part gives remote an EventStream and a Root of its own. Remote hears of its own links by the
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
