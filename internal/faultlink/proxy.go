//go:build unix

package faultlink

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// Proxy carries TCP connections to a server over links.
type Proxy struct {
	ln   net.Listener
	pick func(client net.Conn) *Link // nil: whose it is can't be told, so it is reset
	dial func(context.Context) (net.Conn, error)

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Listen makes a proxy on a free port of the loopback device, which it keeps until Close. pick
// says which link a client's connection takes; one for which it returns nil is reset. dial
// connects to the server, once the link lets it. Both are called for each connection, and by
// several at once.
func Listen(pick func(net.Conn) *Link, dial func(context.Context) (net.Conn, error)) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{ln: ln, pick: pick, dial: dial}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where clients connect, as host:port.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Close ends every connection and returns once all of them have.
func (p *Proxy) Close() {
	p.cancel()
	p.ln.Close()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.ln.Accept()
		if p.ctx.Err() != nil {
			if err == nil {
				reset(conn)
			}
			return
		}
		if err != nil { // out of file descriptors, say: it may pass
			select {
			case <-p.ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		p.wg.Go(func() { p.carry(conn) })
	}
}

// carry moves bytes both ways until both sides are done, one fails, or the link
// refuses.
func (p *Proxy) carry(client net.Conn) {
	link := p.pick(client)
	c := &pipe{link: link, reset: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(p.ctx)
	defer c.cancel()
	if link == nil || !link.enter(c) {
		reset(client)
		return
	}
	defer link.leave(c)
	context.AfterFunc(c.ctx, func() { reset(client); close(c.reset) })
	if !link.pass(c.ctx, toServer, time.Now()) {
		return
	}
	server, err := p.dial(c.ctx)
	if err != nil {
		return
	}
	context.AfterFunc(c.ctx, func() { reset(server) })
	var both sync.WaitGroup
	both.Go(func() { c.pump(toServer, server, client) })
	both.Go(func() { c.pump(fromServer, client, server) })
	both.Wait()
	if c.ctx.Err() == nil { // an orderly end: what is still in the buffers arrives
		client.Close()
		server.Close()
	}
}

// pipe is one connection through a proxy. The end of ctx resets both sides.
type pipe struct {
	link   *Link
	ctx    context.Context
	cancel context.CancelFunc
	reset  chan struct{} // closed once the client's side is
}

// chunk is what was read at once; err is how reading ended, in its place in the
// order of things: the end of a connection travels like its bytes.
type chunk struct {
	data []byte
	sent time.Time
	err  error
}

const (
	chunkSize   = 16 << 10
	chunksAhead = 64
)

// pump reads from src ahead of what dst has been given, so that a delay does not
// narrow the link.
func (c *pipe) pump(d direction, dst, src net.Conn) {
	queue := make(chan chunk, chunksAhead)
	var reader sync.WaitGroup
	defer reader.Wait()
	reader.Go(func() {
		for {
			buf := make([]byte, chunkSize)
			n, err := src.Read(buf)
			select {
			case queue <- chunk{data: buf[:n], sent: time.Now(), err: err}:
			case <-c.ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	for {
		var next chunk
		select {
		case next = <-queue:
		case <-c.ctx.Done():
			return
		}
		if !c.link.pass(c.ctx, d, next.sent) {
			return
		}
		if len(next.data) > 0 {
			if _, err := dst.Write(next.data); err != nil {
				c.cancel()
				return
			}
		}
		if next.err == io.EOF {
			if w, ok := dst.(interface{ CloseWrite() error }); !ok || w.CloseWrite() != nil {
				c.cancel()
			}
			return
		}
		if next.err != nil {
			c.cancel()
			return
		}
	}
}

// reset closes a connection so that the other end sees an error, not an end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only when closed already
	}
	conn.Close()
}
