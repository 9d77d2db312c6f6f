//go:build unix

package faultlink

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

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
