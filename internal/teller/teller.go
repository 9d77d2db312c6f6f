// Package teller calls loggers and instruments. They are code of the user's: they may
// block, panic, end their goroutine, or call back. So what is logged and measured is put
// down, with a lock held or not, and told by a goroutine that nothing waits for.
package teller

import (
	"sync"
	"time"
)

// limit bounds what waits to be told; what comes on top of it is dropped, and
// told of as a number.
const limit = 10_000

// Teller calls functions, in the order they came, one at a time. Nothing waits for it. Safe
// for concurrent use.
type Teller struct {
	Lost func(n int) // told, by the Teller, of how many were dropped or failed

	mu      sync.Mutex
	queue   []func()
	dropped int
	idle    chan struct{} // closed when nothing is left to tell; nil: that is so
}

// Tell has f called.
func (t *Teller) Tell(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) >= limit {
		t.dropped++
		return
	}
	t.queue = append(t.queue, f)
	if t.idle == nil {
		t.idle = make(chan struct{})
		go t.run()
	}
}

// run tells what there is, and ends. If a function ends its goroutine, another goes on.
func (t *Teller) run() {
	var f func()
	var counts bool // if f comes to no good, that is told of
	defer func() {
		if f != nil {
			t.drop(counts)
			go t.run()
		}
	}()
	for f, counts = t.next(); f != nil; f, counts = t.next() {
		if !survives(f) {
			t.drop(counts)
		}
	}
}

func (t *Teller) drop(counts bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if counts {
		t.dropped++
	}
}

// next returns what is to be told next, once there is room again also of how many
// were dropped; nil, and the goroutine's end, when there is nothing.
func (t *Teller) next() (f func(), counts bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch dropped := t.dropped; {
	case dropped > 0 && len(t.queue) <= limit/2:
		t.dropped = 0
		return func() { t.Lost(dropped) }, false // once is enough
	case len(t.queue) > 0:
		f, t.queue = t.queue[0], t.queue[1:]
		return f, true
	}
	t.queue = nil
	close(t.idle)
	t.idle = nil
	return nil, false
}

// survives calls f, and is false if that panicked.
func survives(f func()) (ok bool) {
	defer func() { ok = recover() == nil }()
	f()
	return true
}

// grace is how long Flush waits.
const grace = 100 * time.Millisecond

// Flush waits until all have told what came before: at the end of what they tell of, and
// for 100 ms at most, as users' code may hang.
func Flush(all ...*Teller) {
	t := time.NewTimer(grace)
	defer t.Stop()
	for _, one := range all {
		select {
		case <-one.told():
		case <-t.C:
			return
		}
	}
}

// told is closed when all is told that came before.
func (t *Teller) told() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle == nil {
		return done
	}
	return t.idle
}

var done = func() chan struct{} { c := make(chan struct{}); close(c); return c }()
