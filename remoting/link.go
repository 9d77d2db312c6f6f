package remoting

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/internal/boundary"
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
