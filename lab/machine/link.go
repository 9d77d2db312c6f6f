//go:build linux

package machine

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Shape is what a link does to what is sent over it. The zero Shape is a link that
// does nothing to it.
type Shape struct {
	Delay  time.Duration // of everything
	Jitter time.Duration // up to so much more, drawn for each piece; order is kept
	Rate   int           // bytes a second, of all connections together; 0: no bound
	Stall  bool          // nothing arrives until this ends, and no connection is closed
	Cut    bool          // connections are reset, and none is made
}

// Bounds of what a link keeps. A sender that is faster than the link is held up by TCP.
const (
	buffered  = 64 << 10 // what one connection keeps of a direction, besides the delay line
	delayLine = 1 << 20  // the most that a delay keeps besides, of one connection
	sockets   = 32 << 10 // the buffers of each socket that the system is asked for
	mostPiece = 16 << 10
	leastPart = 512
)

// limit is how much one connection may keep under s.
func (s Shape) limit() int {
	delay := s.Delay + s.Jitter
	switch {
	case delay <= 0:
		return buffered
	case s.Rate <= 0:
		return buffered + delayLine
	}
	return buffered + min(delayLine, int(delay.Seconds()*float64(s.Rate)))
}

// piece is how much is carried at a time: what takes 20 ms at the rate.
func (s Shape) piece() int {
	if s.Rate <= 0 {
		return mostPiece
	}
	return min(mostPiece, max(leastPart, s.Rate/50))
}

// Link is one direction from one node to another: all that the one sends to the other,
// on connections that either made. Its methods are safe for concurrent use.
type Link struct {
	From, To int

	bytes, resets atomic.Int64

	mu      sync.Mutex
	shape   Shape
	changed chan struct{} // closed and replaced with every change
	random  *rand.Rand
	free    time.Time // when all that was let through has left, at the rate
	over    map[*connection]struct{}
}

func newLink(from, to int, seed uint64) *Link {
	return &Link{From: from, To: to, changed: make(chan struct{}), over: map[*connection]struct{}{},
		random: rand.New(rand.NewPCG(seed, uint64(from)<<32|uint64(to)))}
}

// Set gives the link a shape. What is on its way keeps the delay that it was given.
func (l *Link) Set(s Shape) {
	l.mu.Lock()
	l.shape, l.free = s, time.Time{}
	close(l.changed)
	l.changed = make(chan struct{})
	var reset []*connection
	if s.Cut {
		for c := range l.over {
			reset = append(reset, c)
		}
	}
	l.mu.Unlock()
	for _, c := range reset {
		l.resets.Add(1)
		c.cancel()
	}
}

// Heal takes every fault off the link.
func (l *Link) Heal() { l.Set(Shape{}) }

// Shape is the link's at present.
func (l *Link) Shape() Shape {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shape
}

// Bytes is how many bytes have arrived over the link.
func (l *Link) Bytes() int64 { return l.bytes.Load() }

// Resets is how many connections Cut has reset.
func (l *Link) Resets() int64 { return l.resets.Load() }

// enter makes c one that Cut resets; false if the link is cut.
func (l *Link) enter(c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over[c] = struct{}{}
	return !l.shape.Cut
}

func (l *Link) leave(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.over, c)
}

// due is when a piece that comes now may arrive.
func (l *Link) due() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.shape.Delay
	if l.shape.Jitter > 0 {
		d += time.Duration(l.random.Int64N(int64(l.shape.Jitter)))
	}
	return time.Now().Add(d)
}

// slack is how far the rate may make up for a wait that took too long.
const slack = 20 * time.Millisecond

// pass waits until n bytes that are due at a time may arrive; false if ctx has ended.
func (l *Link) pass(ctx context.Context, due time.Time, n int) bool {
	var turn time.Time   // when the link has carried them; zero: it has not begun
	var in chan struct{} // the shape under which that was decided
	for {
		l.mu.Lock()
		now, s, changed := time.Now(), l.shape, l.changed
		if in != changed {
			turn = time.Time{}
		}
		if turn.IsZero() && !s.Stall && !now.Before(due) {
			turn, in = now, changed
			if s.Rate > 0 {
				if earliest := now.Add(-slack); l.free.Before(earliest) {
					l.free = earliest
				}
				l.free = l.free.Add(time.Duration(float64(n) / float64(s.Rate) * float64(time.Second)))
				turn = l.free
			}
		}
		l.mu.Unlock()
		until := due
		if !turn.IsZero() {
			until = turn
			if !now.Before(turn) {
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
