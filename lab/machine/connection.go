//go:build linux

package machine

import (
	"context"
	"sync"
	"time"
)

// connection is one that a node made to another, by way of this process.
type connection struct {
	ctx    context.Context
	cancel context.CancelFunc
}

// carry moves bytes both ways until both sides have ended, or the connection is reset.
// there and back are the links; dial makes the second half of it.
func carry(ctx context.Context, from half, there, back *Link, dial func() (half, error)) {
	c := &connection{}
	c.ctx, c.cancel = context.WithCancel(ctx)
	defer c.cancel()
	defer context.AfterFunc(c.ctx, func() { reset(from) })()
	defer reset(from)
	open := there.enter(c)
	defer there.leave(c)
	open = back.enter(c) && open
	defer back.leave(c)
	// What asks for a connection must get there, and the answer back.
	if !open || !there.pass(c.ctx, there.due(), 1) || !back.pass(c.ctx, back.due(), 1) {
		return
	}
	to, err := dial()
	if err != nil {
		return
	}
	defer context.AfterFunc(c.ctx, func() { reset(to) })()
	defer reset(to)
	small(from)
	small(to)
	var both sync.WaitGroup
	newFlow(c, there, from, to).run(&both)
	newFlow(c, back, to, from).run(&both)
	both.Wait()
	if c.ctx.Err() == nil { // both ended in order
		from.Close()
		to.Close()
	}
}

// small asks the system to keep little, so that a slow link is felt at its sender.
func small(conn half) {
	_ = conn.SetReadBuffer(sockets) // a hint
	_ = conn.SetWriteBuffer(sockets)
}

// flow is one direction of a connection.
type flow struct {
	conn     *connection
	link     *Link
	src, dst half

	mu     sync.Mutex
	moved  *sync.Cond
	pieces []piece
	held   int
	last   time.Time // when the last piece is due: order is kept
	ended  bool      // nothing more comes
}

type piece struct {
	due  time.Time
	data []byte
}

func newFlow(c *connection, l *Link, src, dst half) *flow {
	f := &flow{conn: c, link: l, src: src, dst: dst}
	f.moved = sync.NewCond(&f.mu)
	return f
}

func (f *flow) run(all *sync.WaitGroup) {
	stop := context.AfterFunc(f.conn.ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.moved.Broadcast()
	})
	all.Go(func() {
		defer stop() // not before both have ended, who wait for its word
		var reader sync.WaitGroup
		reader.Go(f.read)
		f.write()
		reader.Wait()
	})
}

// read takes up what is sent while there is room.
func (f *flow) read() {
	buf := make([]byte, mostPiece)
	for f.room() {
		n, err := f.src.Read(buf[:f.link.Shape().piece()])
		f.mu.Lock()
		if n > 0 {
			if due := f.link.due(); due.After(f.last) {
				f.last = due
			}
			f.pieces = append(f.pieces, piece{f.last, append([]byte(nil), buf[:n]...)})
			f.held += n
		}
		f.ended = err != nil
		f.moved.Broadcast()
		f.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// room waits until another piece may be kept; false if the connection is over.
func (f *flow) room() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.conn.ctx.Err() == nil && f.held >= f.link.Shape().limit() {
		f.moved.Wait()
	}
	return f.conn.ctx.Err() == nil
}

// next waits for a piece; false if none comes any more.
func (f *flow) next() (p piece, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.conn.ctx.Err() == nil && len(f.pieces) == 0 && !f.ended {
		f.moved.Wait()
	}
	if f.conn.ctx.Err() != nil || len(f.pieces) == 0 {
		return p, false
	}
	return f.pieces[0], true
}

// write delivers what is due. The end travels behind the bytes before it.
func (f *flow) write() {
	for {
		p, ok := f.next()
		if !ok {
			break
		}
		if !f.link.pass(f.conn.ctx, p.due, len(p.data)) {
			return
		}
		f.link.bytes.Add(int64(len(p.data))) // before anybody can have read them
		if _, err := f.dst.Write(p.data); err != nil {
			f.conn.cancel()
			return
		}
		f.mu.Lock()
		f.pieces, f.held = f.pieces[1:], f.held-len(p.data)
		f.moved.Broadcast()
		f.mu.Unlock()
	}
	if f.link.pass(f.conn.ctx, f.link.due(), 1) {
		_ = f.dst.CloseWrite() // it may be gone
	}
}
