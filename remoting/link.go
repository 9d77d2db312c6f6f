package remoting

import (
	"context"
	"errors"
	"io"

	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/internal/outside"
)

// link is a stream to a peer, over which that says only that it has gone. Remote tells
// the subscribers of the EventStream of it on a goroutine that nothing contains: one
// that panics would end the process. So they are told here.
type link struct {
	grpc.ClientStream
	node      *Node
	address   string
	connected bool // used by remote's one goroutine that receives
}

// follow makes the link of a stream that was opened.
func (g *guard) follow(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	n := g.node.Load()
	if err != nil || n == nil {
		return s, err
	}
	return &link{ClientStream: s, node: n, address: cc.Target()}, nil
}

// RecvMsg returns the answer to the first message; then it ends when the link has.
func (l *link) RecvMsg(m any) error {
	if !l.connected {
		l.connected = true
		return l.ClientStream.RecvMsg(m)
	}
	for {
		err := l.ClientStream.RecvMsg(m)
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		l.node.lost(l.address, err)
		if err != nil {
			return io.EOF
		}
	}
}

// lost tells that the link to address is not to be used any more: it broke, or the peer
// asked for it.
func (n *Node) lost(address string, why error) {
	if why != nil {
		n.warn("remoting: the link broke", "address", address, "error", why)
	}
	if err := outside.Call(func() error {
		n.system.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: address})
		return nil
	}); err != nil {
		n.warn("remoting: a subscriber of the EventStream failed", "error", err)
	}
}
