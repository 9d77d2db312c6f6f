// Package feed passes values on to those who may be slow. The giver never waits for them, and what
// waits is bounded.
//
//	Queue   functions, called in order on a goroutine that runs while any waits: events, log lines
//	Latest  the newest state, to each follower at its own pace; states in between may be skipped
//	Watch   changes of a store, taken by the loop of one watch, which ends with an error if it is too slow
//	Hub     the watches of a store, and the goroutine that reads changes for all of them
package feed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/store"
)

// ErrOverrun ends a Watch whose consumer fell too far behind.
var ErrOverrun = errors.New("lease watch overrun")

// Watch is what waits for one running watch of a store: changes C of the names under a prefix.
type Watch[C any] struct {
	store.Scope

	told  time.Time // when that was told last
	bound int
	ready chan struct{} // has room for one: something waits

	mu    sync.Mutex
	queue []C
	err   error // ends the watch, once the queue is empty
}

// NewWatch returns a Watch for which up to bound changes may wait.
func NewWatch[C any](of store.Scope, bound int) *Watch[C] {
	return &Watch[C]{Scope: of, told: time.Now(), bound: bound, ready: make(chan struct{}, 1)}
}

// Watches are those of a store that run. Its owner's mutex guards it, and is taken before theirs.
type Watches[C any] map[*Watch[C]]struct{}

// Push queues a change of name for each watch that wants it.
func (ws Watches[C]) Push(name string, deleted bool, c C) {
	for w := range ws {
		if strings.HasPrefix(name, w.Prefix) && (deleted || !w.Deletions) {
			w.Push(c)
		}
	}
}

// Reassure queues c, which says that a watch runs, for each that is to be told so at now. That is early
// by half of Progress, since its caller looks from time to time.
func (ws Watches[C]) Reassure(now time.Time, c C) {
	for w := range ws {
		if w.Progress > 0 && now.Sub(w.told) >= w.Progress/2 {
			w.told = now
			w.Push(c)
		}
	}
}

// Fail ends each watch with err.
func (ws Watches[C]) Fail(err error) {
	for w := range ws {
		w.Fail(err)
	}
}

// Push queues a change. A full queue is dropped, and ends the watch with ErrOverrun.
func (w *Watch[C]) Push(c C) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return
	case len(w.queue) >= w.bound:
		w.queue, w.err = nil, fmt.Errorf("%w: more than %d changes under %q waited", ErrOverrun, w.bound, w.Prefix)
	default:
		w.queue = append(w.queue, c)
	}
	w.signal()
}

// Fail ends the watch with err, behind what is queued.
func (w *Watch[C]) Fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.signal()
}

func (w *Watch[C]) signal() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// Take waits for changes and returns all that are queued; then, or at the end of ctx, an error.
func (w *Watch[C]) Take(ctx context.Context) ([]C, error) {
	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return nil, boundary.Ended(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queue
	w.queue = nil
	if len(q) > 0 && w.err != nil {
		w.signal()
		return q, nil
	}
	return q, w.err
}

// Each passes first on to yield, and then what w takes, until yield wants no more or the watch ends:
// then with what failed makes of its error, or of that of ctx and its cause. event returns what a change tells,
// or false if that is nothing.
func Each[C, E any](ctx context.Context, w *Watch[C], first []C, event func(C) (E, bool),
	failed func(error) error, yield func(E, error) bool) {
	var nothing E
	for changes, err := first, error(nil); ; changes, err = w.Take(ctx) {
		if err != nil {
			yield(nothing, failed(err))
			return
		}
		for i, c := range changes {
			if ctx.Err() != nil {
				yield(nothing, failed(boundary.Ended(ctx)))
				return
			}
			var taken C
			changes[i] = taken // a slow loop keeps no more of them than it must
			if e, ok := event(c); ok && !yield(e, nil) {
				return
			}
		}
	}
}
