package remoting

import (
	"context"
	"errors"
	"io"

	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/internal/outside"
)

// link is a stream to a peer, over which that says only that it has gone. Remote acts on it
// on a goroutine that nothing contains, and may make dead letters, whose subscribers would
// end the process if they panic. So it is done here.
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
		if err != nil {
			l.node.warn("remoting: the link broke", "address", l.address, "error", err)
		}
		l.node.lost(l.address)
		if err != nil {
			return io.EOF
		}
	}
}

// lost has remote give up the link to address, and all told that it is not to be used any
// more: it broke, or the peer asked for it.
func (n *Node) lost(address string) {
	if err := outside.Call(func() error {
		n.events.Publish(&remote.EndpointTerminatedEvent{Address: address})
		return nil
	}); err != nil {
		n.warn("remoting: a subscriber of dead letters failed", "error", err)
	}
}
