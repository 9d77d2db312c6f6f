//go:build unix

package faultlink

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
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
	return On(ln, pick, dial), nil
}

// On is Listen on a listener that was made before.
func On(ln net.Listener, pick func(net.Conn) *Link, dial func(context.Context) (net.Conn, error)) *Proxy {
	p := &Proxy{ln: ln, pick: pick, dial: dial}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.accept)
	return p
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
	c := &pipe{reset: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(p.ctx)
	defer c.cancel()
	context.AfterFunc(c.ctx, func() { reset(client); close(c.reset) })
	if link == nil {
		return
	}
	defer link.requests.leave(c)
	defer link.replies.leave(c)
	open := link.requests.enter(c)
	if open = link.replies.enter(c) && open; !open || !link.requests.pass(c.ctx, piece{sent: time.Now()}) {
		return
	}
	server, err := p.dial(c.ctx)
	if err != nil {
		return
	}
	context.AfterFunc(c.ctx, func() { reset(server) })
	var both sync.WaitGroup
	c.carry(&both, link.requests, client, server)
	c.carry(&both, link.replies, server, client)
	both.Wait()
	if c.ctx.Err() == nil { // an orderly end: what is still in the buffers arrives
		client.Close()
		server.Close()
	}
}

// pipe is one connection through a proxy. The end of ctx resets both sides.
type pipe struct {
	ctx    context.Context
	cancel context.CancelFunc
	reset  chan struct{} // closed once the client's side is
}

// piece is what was read at once; err is how reading ended, in its place in the
// order of things: the end of a connection travels like its bytes.
type piece struct {
	data []byte
	sent time.Time
	luck float64 // the share of the jitter that it gets
	err  error
}

// flow is one direction of a connection. It reads ahead of what dst has been given, so that a delay does
// not narrow the link.
type flow struct {
	*pipe
	way      *Way
	src, dst net.Conn

	mu     sync.Mutex
	moved  *sync.Cond
	pieces []piece
	held   int // bytes
}

// carry begins to move bytes in one direction.
func (c *pipe) carry(all *sync.WaitGroup, w *Way, src, dst net.Conn) {
	f := &flow{pipe: c, way: w, src: src, dst: dst}
	f.moved = sync.NewCond(&f.mu)
	context.AfterFunc(c.ctx, func() { f.change(func() {}) })
	all.Go(f.read)
	all.Go(f.write)
}

func (f *flow) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	f.moved.Broadcast()
}

// wait waits until is holds; false if the connection is over.
func (f *flow) wait(is func() bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.ctx.Err() == nil && !is() {
		f.moved.Wait()
	}
	return f.ctx.Err() == nil
}

// read takes up what is sent while there is room.
func (f *flow) read() {
	buf := make([]byte, mostPiece)
	for f.wait(func() bool { return f.held < f.way.Shape().limit() }) {
		n, err := f.src.Read(buf[:f.way.Shape().piece()])
		p := piece{bytes.Clone(buf[:n]), time.Now(), rand.Float64(), err}
		f.change(func() { f.pieces, f.held = append(f.pieces, p), f.held+n })
		if err != nil {
			return
		}
	}
}

// write delivers what is due.
func (f *flow) write() {
	var p piece
	for f.wait(func() bool {
		if len(f.pieces) > 0 {
			p = f.pieces[0]
		}
		return len(f.pieces) > 0
	}) {
		if !f.way.pass(f.ctx, p) {
			return
		}
		f.way.bytes.Add(int64(len(p.data))) // before anybody can have read them
		_, err := f.dst.Write(p.data)
		if err == nil && p.err == io.EOF {
			if w, ok := f.dst.(interface{ CloseWrite() error }); ok && w.CloseWrite() == nil {
				return
			}
		}
		if err != nil || p.err != nil {
			f.cancel()
			return
		}
		f.change(func() { f.pieces, f.held = f.pieces[1:], f.held-len(p.data) })
	}
}

// reset closes a connection so that the other end sees an error, not an end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only when closed already
	}
	conn.Close()
}
