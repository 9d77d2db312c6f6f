package remoting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/outlet"
)

// link is a stream to a peer, over which that says only that it has gone. Remote acts on it
// on a goroutine that nothing contains, and may make dead letters, whose subscribers would
// end the process if they panic. So it is done here.
//
// Remote takes the link for made at once, and the link holds what remote sends until it is. If remote
// made it, every message of two seconds after an attempt that failed would be lost, also those to a
// node that has started at that address meanwhile.
type link struct {
	grpc.ClientStream // after made
	node              *Node
	address           string
	open              func() (grpc.ClientStream, error)
	cancel            context.CancelFunc // of the stream
	asked, answered   bool               // remote has sent its request; it has got its answer
	made              chan struct{}      // closed when the link is made or has failed
	failed            error              // after made
}

// follow makes the link of a stream that is opened. It may be given up meanwhile.
func (g *guard) follow(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	n := g.node.Load()
	if n == nil {
		return nil, errNotStarted
	}
	l := &link{node: n, address: cc.Target(), made: make(chan struct{})}
	ctx, l.cancel = context.WithCancel(ctx)
	l.open = func() (grpc.ClientStream, error) {
		return open(ctx, desc, cc, method, append(opts, grpc.WaitForReady(true))...)
	}
	n.links.Store(l, nil)
	return l, nil
}

// connect makes the link with remote's request.
func (l *link) connect(request any) {
	defer close(l.made)
	defer time.AfterFunc(connectWithin, l.cancel).Stop()
	l.ClientStream, l.failed = l.ask(request)
	if actors.LinkTried(l.node.system, l.address, cause(l.failed)); l.failed == nil {
		outlet.Of(l.node.system).Publish(&remote.EndpointConnectedEvent{Address: l.address})
	}
}

// cause is what gRPC's error is about, without what it was wrapped in on its way.
func cause(err error) error {
	if err == nil {
		return nil
	}
	text := status.Convert(err).Message()
	if _, inner, ok := strings.Cut(text, `desc = "`); ok {
		text = strings.TrimSuffix(inner, `"`)
	}
	return errors.New(text)
}

// ask opens the stream, and returns it once the peer has answered. Interceptors may be users'.
func (l *link) ask(request any) (s grpc.ClientStream, err error) {
	defer boundary.Contain(&err)
	if s, err = l.open(); err != nil {
		return nil, err
	}
	if err = s.SendMsg(request); err != nil {
		return nil, err
	}
	var answer remote.RemoteMessage
	if err = s.RecvMsg(&answer); err == nil && answer.GetConnectResponse() == nil {
		err = fmt.Errorf("the peer answered %T", answer.MessageType)
	}
	return s, err
}

// SendMsg sends. The first message is remote's request.
func (l *link) SendMsg(m any) error {
	if !l.asked {
		l.asked = true
		go l.connect(m)
		return nil
	}
	if <-l.made; l.failed != nil {
		l.node.undelivered(m.(*remote.RemoteMessage).GetMessageBatch())
		return nil
	}
	return l.ClientStream.SendMsg(m)
}

// RecvMsg answers remote's request; then it ends when the link has.
func (l *link) RecvMsg(m any) error {
	if !l.answered {
		l.answered = true
		m.(*remote.RemoteMessage).MessageType = &remote.RemoteMessage_ConnectResponse{ConnectResponse: &remote.ConnectResponse{}}
		return nil
	}
	<-l.made
	for {
		what, err := "remoting: no link", l.failed
		if err == nil {
			what, err = "remoting: the link broke", l.ClientStream.RecvMsg(m)
		}
		if _, open := l.node.links.LoadAndDelete(l); open {
			l.node.lost(l.address) // before a logger is called, which may not return
			if err != nil && !errors.Is(err, io.EOF) {
				l.node.warn(what, "address", l.address, "error", err)
			}
		}
		if err != nil {
			l.cancel()
			return io.EOF
		}
	}
}

// CloseSend is called where remote gives the link up.
func (l *link) CloseSend() error {
	select {
	case <-l.made:
		if l.failed == nil {
			return l.ClientStream.CloseSend()
		}
	default:
		l.cancel()
	}
	return nil
}

// lost has remote give up the link to address, and all told that it is not to be used any
// more: it broke, or the peer asked for it.
func (n *Node) lost(address string) {
	if err := boundary.Contained(func() { n.events.Publish(&remote.EndpointTerminatedEvent{Address: address}) }); err != nil {
		n.warn("remoting: a link's end was not taken up", "error", err)
		n.ended(address)
	}
}

// leave tells the peers of open streams to hang up; none is let in any more.
func (n *Node) leave() {
	n.open.Range(func(in, _ any) bool {
		// A peer that reads nothing blocks this until its connection is closed.
		go func() {
			_ = in.(*inbound).SendMsg(&remote.RemoteMessage{MessageType: &remote.RemoteMessage_DisconnectRequest{
				DisconnectRequest: &remote.DisconnectRequest{},
			}})
		}()
		return true
	})
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

// before is a subscriber that comes before remote itself. Remote knows a link by its address alone: who
// told of the end of one that has been given up would end the one that follows.
func (n *Node) before(event any) {
	if e, ok := event.(*remote.EndpointTerminatedEvent); ok {
		n.links.Range(func(l, _ any) bool {
			if l.(*link).address == e.Address {
				n.links.Delete(l)
			}
			return true
		})
	}
}

// after is a subscriber that comes after remote itself: what is sent now makes a new link.
func (n *Node) after(event any) {
	switch e := event.(type) {
	case *remote.EndpointTerminatedEvent:
		n.ended(e.Address)
	case *remote.EndpointConnectedEvent: // not yet: see link
	default:
		outlet.Of(n.system).Publish(event)
	}
}

// ended publishes that the link to address ended.
func (n *Node) ended(address string) { outlet.Of(n.system).Do(actors.LinkBroke(n.system, address)) }
