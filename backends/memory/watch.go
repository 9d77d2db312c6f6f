package memory

import (
	"context"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/store"
)

// ErrWatchOverrun ends a Watch whose consumer fell further behind than 131 072 changes. Watch again
// for a new snapshot.
var ErrWatchOverrun = feed.ErrOverrun

// watchBuffer is how many changes may wait for one watch. One takes 24 bytes.
const watchBuffer = 1 << 17

// change is one thing to tell, and one record of a snapshot.
type change struct {
	record  *record // nil: that the watch runs, or the end of a snapshot
	left    time.Duration
	deleted store.Token // the deletion's revision; 0: record stands, or the watch runs
}

func (c change) event() (ev store.Event, ok bool) {
	switch {
	case c.record == nil && c.deleted != 0:
		ev = store.Event{Kind: store.EventSynced}
	case c.record == nil:
		ev = store.Event{Kind: store.EventProgress}
	case c.deleted != 0:
		ev = store.Event{Kind: store.EventDelete, Record: store.Record{Name: c.record.name}, Revision: c.deleted}
	default:
		ev = store.Event{Kind: store.EventPut, Record: c.record.public(c.left), Revision: c.record.token}
	}
	return ev, true
}

// watcher is one running Watch. Its mutex is taken after the Store's.
type watcher = feed.Watch[change]

// tell queues c for each watcher of its name.
func (s *Store) tell(c change) { s.watchers.Push(c.record.name, c.deleted != 0, c) }

// Watch yields the records of the scope as they stood when the iteration began,
// store.EventSynced, and then every change, in the order in which the Store
// made them, over all names. Expiries are yielded when they happen.
//
// The iteration ends with the context's error or with ErrWatchOverrun. The
// loop's body may call the Store.
func (s *Store) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		w, snapshot, err := s.subscribe(ctx, of)
		if err != nil {
			yield(store.Event{}, err)
			return
		}
		defer s.unsubscribe(w)
		feed.Each(ctx, w, snapshot, change.event, func(err error) error { return failed("watch", err) }, yield)
	}
}

// reassure has w yield store.EventProgress every Progress, while it runs.
func (s *Store) reassure(w *watcher) {
	s.clock.AfterFunc(w.Progress, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, runs := s.watchers[w]; runs {
			s.expire(s.clock.Now().Mono)
			w.Push(change{})
			s.reassure(w)
		}
	})
}

// subscribe takes the snapshot, unless deletions alone are watched, and registers
// the watcher at one moment.
func (s *Store) subscribe(ctx context.Context, of store.Scope) (w *watcher, snapshot []change, err error) {
	now, err := s.begin(ctx, "watch")
	if err != nil {
		return nil, nil, err
	}
	defer s.mu.Unlock()
	s.stats.Watch++
	w = feed.NewWatch[change](of, watchBuffer)
	s.watchers[w] = struct{}{}
	s.arm(now)
	if w.Progress > 0 {
		s.reassure(w)
	}
	if !of.Deletions {
		snapshot = s.snapshot(now, of.Prefix)
	}
	return w, append(snapshot, change{deleted: 1}), nil
}

func (s *Store) unsubscribe(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
	s.arm(s.clock.Now().Mono)
}
