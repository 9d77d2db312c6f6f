package feed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Hub has the run of a store's watches, while there are any: one goroutine that reads the changes for
// all of them. Its zero value is ready to use.
//
//	first watch ─▶ a Run: finds where it begins, closes Began, reads and pushes
//	last watch ends, or Fail ─▶ the Run's Ctx is done; the next watch has another
type Hub[C any] struct {
	mu  sync.Mutex
	run *Run[C]
}

// Run is what reads for the watches of one time.
type Run[C any] struct {
	Ctx   context.Context // done when the last watch has ended, and after Fail
	Began chan struct{}   // the reader closes it, once; watches wait for it
	Woken chan struct{}   // has room for one: there may be something to read
	Floor atomic.Int64    // all changes up to this were read

	hub     *Hub[C]
	end     context.CancelFunc
	watches Watches[C] // guarded by hub.mu
}

// Subscribe has w get what is pushed from now on, by the present run or one that begin starts.
func (h *Hub[C]) Subscribe(w *Watch[C], begin func(*Run[C])) *Run[C] {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.run
	if r == nil {
		r = &Run[C]{Began: make(chan struct{}), Woken: make(chan struct{}, 1), hub: h, watches: Watches[C]{}}
		r.Ctx, r.end = context.WithCancel(context.Background())
		h.run = r
		begin(r)
	}
	r.watches[w] = struct{}{}
	return r
}

// Unsubscribe ends w, and its run if it was the last.
func (h *Hub[C]) Unsubscribe(r *Run[C], w *Watch[C]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(r.watches, w); len(r.watches) == 0 {
		r.overLocked()
	}
}

func (r *Run[C]) overLocked() {
	r.end()
	if r.hub.run == r {
		r.hub.run = nil
	}
}

// Begun waits until the reader has begun, or the run has ended, as the watch then will; false if ctx is
// done first.
func (r *Run[C]) Begun(ctx context.Context) bool {
	select {
	case <-r.Began:
	case <-r.Ctx.Done():
	case <-ctx.Done():
		return false
	}
	return true
}

// Watched reports whether a watch runs.
func (h *Hub[C]) Watched() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.run != nil
}

// Wake has the run read at once, if there is one.
func (h *Hub[C]) Wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run != nil {
		h.run.Wake()
	}
}

// Wake has the run read at once.
func (r *Run[C]) Wake() {
	select {
	case r.Woken <- struct{}{}:
	default:
	}
}

// Rest waits for d, or until the run is woken; false when it is over.
func (r *Run[C]) Rest(d time.Duration) bool {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Woken:
	case <-r.Ctx.Done():
	}
	return r.Ctx.Err() == nil
}

// Each calls f with the run's watches, which it may push to.
func (r *Run[C]) Each(f func(Watches[C])) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	f(r.watches)
}

// Fail ends the run and its watches.
func (r *Run[C]) Fail(err error) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.watches.Fail(err)
	r.overLocked()
}
