package feed

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/store"
)

// Change is an event with its number in the store's log of changes; 0: it has none, as that of a snapshot.
type Change struct {
	Seq int64
	store.Event
}

// failing is how long requests may fail before a run ends.
const failing = 10 * time.Second

// Hub has the run of a store's watches, while there are any: one goroutine that reads the changes for
// all of them. Its zero value is ready to use.
//
//	first watch ─▶ a Run: finds where it begins, closes Began, reads and pushes
//	last watch ends, or Fail ─▶ the Run's Ctx is done; the next watch has another
type Hub struct {
	mu  sync.Mutex
	run *Run
}

// Run is what reads for the watches of one time.
type Run struct {
	Ctx   context.Context // done when the last watch has ended, and after Fail
	Began chan struct{}   // the reader closes it, once; watches wait for it
	Woken chan struct{}   // has room for one: there may be something to read
	Floor atomic.Int64    // all changes up to this were read

	good    time.Time // when the last request succeeded; of the reader alone
	hub     *Hub
	end     context.CancelFunc
	watches Watches[Change] // guarded by hub.mu
}

// Subscribe has w get what is pushed from now on, by the present run or one that begin starts.
func (h *Hub) Subscribe(w *Watch[Change], begin func(*Run)) *Run {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.run
	if r == nil {
		r = &Run{Began: make(chan struct{}), Woken: make(chan struct{}, 1), good: time.Now(), hub: h, watches: Watches[Change]{}}
		r.Ctx, r.end = context.WithCancel(context.Background())
		h.run = r
		begin(r)
	}
	r.watches[w] = struct{}{}
	return r
}

// Unsubscribe ends w, and its run if it was the last.
func (h *Hub) Unsubscribe(r *Run, w *Watch[Change]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(r.watches, w); len(r.watches) == 0 {
		r.overLocked()
	}
}

func (r *Run) overLocked() {
	r.end()
	if r.hub.run == r {
		r.hub.run = nil
	}
}

// Begun waits until the reader has begun, or the run has ended, as the watch then will; false if ctx is
// done first.
func (r *Run) Begun(ctx context.Context) bool {
	select {
	case <-r.Began:
	case <-r.Ctx.Done():
	case <-ctx.Done():
		return false
	}
	return true
}

// Watches counts the watches that run.
func (h *Hub) Watches() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run == nil {
		return 0
	}
	return len(h.run.watches)
}

// Wake has the run read at once, if there is one.
func (h *Hub) Wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run != nil {
		h.run.Wake()
	}
}

// Wake has the run read at once.
func (r *Run) Wake() {
	select {
	case r.Woken <- struct{}{}:
	default:
	}
}

// Rest waits for d, or until the run is woken; false when it is over.
func (r *Run) Rest(d time.Duration) bool {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Woken:
	case <-r.Ctx.Done():
	}
	return r.Ctx.Err() == nil
}

// Tried takes up what came of a request of the reader, and reports whether it succeeded. An error that
// is store.ErrDenied or lost, or that lasts for 10 s, ends the run. Others are logged.
func (r *Run) Tried(err, lost error, log *zap.Logger) (ok bool) {
	switch {
	case err == nil:
		r.good = time.Now()
		return true
	case r.Ctx.Err() != nil:
	case errors.Is(err, store.ErrDenied), errors.Is(err, lost), time.Since(r.good) > failing:
		r.Fail(err)
	default:
		log.Info("looking for changes fails, to be repeated", zap.Error(err))
	}
	return false
}

// Push queues changes for the watches that want them.
func (r *Run) Push(changes []Change) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	for _, c := range changes {
		r.watches.Push(c.Record.Name, c.Kind == store.EventDelete, c)
	}
}

// Reassure says that the run has read all there is, for each watch that is to yield store.EventProgress.
func (r *Run) Reassure() {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.watches.Reassure(time.Now(), Change{Event: store.Event{Kind: store.EventProgress}})
}

// Within is d or, if that is shorter, that part of the shortest time in which a watch needs a sign.
func (r *Run) Within(d, part time.Duration) time.Duration {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	for w := range r.watches {
		if w.Progress > 0 {
			d = min(d, w.Progress/part)
		}
	}
	return d
}

// Fail ends the run and its watches.
func (r *Run) Fail(err error) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.failLocked(err)
}

// Fail ends the present run, if there is one, and its watches.
func (h *Hub) Fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run != nil {
		h.run.failLocked(err)
	}
}

func (r *Run) failLocked(err error) {
	r.watches.Fail(err)
	r.overLocked()
}
