//go:build unix

// Package faultlink carries the connections of clients to servers through proxies of this
// process, and breaks them on purpose: the one place for cut, delay, throttle and heal of every kit
// that tests against real servers, and of the laboratory's links between nodes.
package faultlink

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
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

// Link is a way to one server through proxies, and the way back, with the faults that are on them.
// Faults apply to connections that exist and to new ones, from the moment the
// call returns on; what a chunk of bytes met before is not undone. They add up
// until Heal: a cut link may be slow too.
//
//	open ──Cut──▶ cut (nothing passes, connections stay) ──┐
//	 │  ──CutReplies──▶ half cut (requests still arrive) ──┼─Heal─▶ open
//	 └──Refuse──▶ refused (connections are reset) ─────────┘
type Link struct{ requests, replies *Way }

// New makes a link without faults.
func New() *Link { return Of(NewWay(), NewWay()) }

// Of makes a link of two ways.
func Of(requests, replies *Way) *Link { return &Link{requests, replies} }

// Cut makes the link a black hole: connections stay open and can be made, and
// nothing arrives at either end, not even their closing. As with a network that
// comes back, what was sent meanwhile arrives after Heal, also when its sender
// has given up. A connection holds at most about 1 MiB for each direction, then its
// sender blocks; the number of connections has no bound.
func (l *Link) Cut() { l.change(func(s *Shape) { s.Stall = true }) }

// CutReplies lets requests through and keeps the server's replies back, until
// Heal: the request is done and the client does not know.
func (l *Link) CutReplies() { l.replies.change(func(s *Shape) { s.Stall = true }) }

// Refuse resets every connection, and every new one as soon as it is made.
func (l *Link) Refuse() { l.change(func(s *Shape) { s.Cut = true }) }

// Delay makes everything take d longer in each direction, connecting included;
// 0 is no delay. Order and throughput stay.
func (l *Link) Delay(d time.Duration) { l.change(func(s *Shape) { s.Delay = max(d, 0) }) }

// Heal takes all faults off the link. Connections that were reset stay so.
func (l *Link) Heal() { l.change(func(s *Shape) { *s = Shape{} }) }

func (l *Link) change(f func(*Shape)) {
	l.requests.change(f)
	l.replies.change(f)
}

// Faults are those that are on a link.
type Faults struct {
	Requests, Replies bool // held back, on their way to the server and from it
	Refused           bool
	Delay             time.Duration
}

// Faults are those that are on the link now; the zero Faults of one without.
func (l *Link) Faults() Faults {
	there, back := l.requests.Shape(), l.replies.Shape()
	return Faults{Requests: there.Stall, Replies: back.Stall, Refused: there.Cut, Delay: there.Delay}
}

// Shape is what a Way does to what is sent over it. The zero Shape is a way that does nothing to it.
type Shape struct {
	Delay  time.Duration // of everything
	Jitter time.Duration // up to so much more, drawn for each piece; order is kept
	Rate   int           // bytes a second, of all connections together; 0: no bound
	Stall  bool          // nothing arrives until this ends, and no connection is closed
	Cut    bool          // connections are reset, and none is made
}

// Bounds of what a way keeps of one connection. A sender that is faster than the way is held up by TCP.
const (
	buffered  = 64 << 10 // where there is a rate, besides what it delays
	most      = 1 << 20
	mostPiece = 16 << 10
	leastPart = 512
)

// limit is how much of one connection a way keeps.
func (s Shape) limit() int {
	if s.Rate <= 0 {
		return most
	}
	return min(most, buffered+int((s.Delay+s.Jitter).Seconds()*float64(s.Rate)))
}

// piece is how much is carried at a time: what takes 20 ms at the rate.
func (s Shape) piece() int {
	if s.Rate <= 0 {
		return mostPiece
	}
	return min(mostPiece, max(leastPart, s.Rate/50))
}

// Way is one direction of connections. Its methods are safe for concurrent use.
type Way struct {
	bytes atomic.Int64

	mu      sync.Mutex
	shape   Shape
	changed chan struct{} // closed and replaced with every change
	free    time.Time     // when all that was let through has left, at the rate
	over    map[*pipe]struct{}
}

// NewWay makes one that does nothing.
func NewWay() *Way { return &Way{changed: make(chan struct{}), over: map[*pipe]struct{}{}} }

// Set gives the way a shape, also for what is on it.
func (w *Way) Set(s Shape) { w.change(func(to *Shape) { *to = s }) }

// Heal takes every fault off the way.
func (w *Way) Heal() { w.Set(Shape{}) }

func (w *Way) change(f func(*Shape)) {
	w.mu.Lock()
	f(&w.shape)
	w.free = time.Time{}
	close(w.changed)
	w.changed = make(chan struct{})
	var reset []*pipe
	if w.shape.Cut {
		for c := range w.over {
			reset = append(reset, c)
		}
	}
	w.mu.Unlock()
	for _, c := range reset {
		c.cancel()
		<-c.reset // so that no client can use it after this call
	}
}

// Shape is the way's at present.
func (w *Way) Shape() Shape {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shape
}

// Bytes is how many bytes have arrived over the way.
func (w *Way) Bytes() int64 { return w.bytes.Load() }

// enter makes c one that Cut resets; false if the way is cut.
func (w *Way) enter(c *pipe) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over[c] = struct{}{}
	return !w.shape.Cut
}

func (w *Way) leave(c *pipe) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.over, c)
}

// slack is how far the rate may make up for a wait that took too long.
const slack = 20 * time.Millisecond

// pass waits until a piece may arrive; false if ctx has ended.
func (w *Way) pass(ctx context.Context, p piece) bool {
	var turn time.Time   // when the way has carried it; zero: it has not begun
	var in chan struct{} // the shape under which that was decided
	for {
		w.mu.Lock()
		now, s, changed := time.Now(), w.shape, w.changed
		until := p.sent.Add(s.Delay + time.Duration(p.luck*float64(s.Jitter)))
		if in != changed {
			turn = time.Time{}
		}
		if turn.IsZero() && !s.Stall && !now.Before(until) {
			turn, in = now, changed
			if s.Rate > 0 {
				if earliest := now.Add(-slack); w.free.Before(earliest) {
					w.free = earliest
				}
				w.free = w.free.Add(time.Duration(float64(max(len(p.data), 1)) / float64(s.Rate) * float64(time.Second)))
				turn = w.free
			}
		}
		w.mu.Unlock()
		if !turn.IsZero() {
			if until = turn; !now.Before(turn) {
				return ctx.Err() == nil
			}
		}
		var timer <-chan time.Time
		if !s.Stall {
			timer = time.After(until.Sub(now))
		}
		select {
		case <-timer:
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
