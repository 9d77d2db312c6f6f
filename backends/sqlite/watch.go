package sqlite

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/lease"
)

// ErrWatchOverrun ends a Watch that fell further behind than changes are kept. Watch again for
// a new snapshot.
var ErrWatchOverrun = errors.New("sqlite store watch overrun")

// watchBuffer bounds how many events wait for one watcher.
const watchBuffer = 1 << 17

// watcher is one running Watch. Its mutex is taken after the Store's.
type watcher struct {
	prefix    string
	deletions bool          // tell of nothing else
	ready     chan struct{} // has room for one: something waits

	mu    sync.Mutex
	queue []change
	err   error // it ends with that, once the queue is empty
}

// change is an event with its number; 0: it has none, as that of a snapshot.
type change struct {
	seq int64
	lease.Event
}

func (w *watcher) push(e change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	if len(w.queue) >= watchBuffer {
		w.queue, w.err = nil, failed("watch",
			fmt.Errorf("%w: more than %d changes under %q waited", ErrWatchOverrun, watchBuffer, w.prefix))
	} else {
		w.queue = append(w.queue, e)
	}
	w.ring()
}

func (w *watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.ring()
}

func (w *watcher) ring() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// take waits for events and returns all that are queued, or why there will be no more.
func (w *watcher) take(ctx context.Context) ([]change, error) {
	for {
		select {
		case <-w.ready:
		case <-ctx.Done():
			return nil, failed("watch", ended(ctx))
		}
		w.mu.Lock()
		q, err := w.queue, w.err
		w.queue = nil
		if len(q) > 0 && err != nil {
			w.ring()
		}
		w.mu.Unlock()
		switch {
		case len(q) > 0:
			return q, nil
		case err != nil:
			return nil, err
		}
	}
}

// Watch yields the records under prefix as they stood when the iteration began,
// lease.EventSynced, and then every change, in the order in which they were made, over all
// names, by whatever process. A Store that is watched also removes what has expired, so that it is
// told when it happens.
//
// The iteration ends with the context's error, with ErrWatchOverrun, or when the Store ends. The
// loop's body may call the Store.
func (s *Store) Watch(ctx context.Context, prefix string) iter.Seq2[lease.Event, error] {
	return s.watch(ctx, prefix, false)
}

// WatchDeletions is Watch without a snapshot and without what is put.
func (s *Store) WatchDeletions(ctx context.Context, prefix string) iter.Seq2[lease.Event, error] {
	return s.watch(ctx, prefix, true)
}

func (s *Store) watch(ctx context.Context, prefix string, deletions bool) iter.Seq2[lease.Event, error] {
	return func(yield func(lease.Event, error) bool) {
		w := &watcher{prefix: prefix, deletions: deletions, ready: make(chan struct{}, 1)}
		changes, at, err := s.subscribe(ctx, w)
		if err != nil {
			yield(lease.Event{}, err)
			return
		}
		defer s.unsubscribe(w)
		for {
			for i, c := range changes {
				if ctx.Err() != nil {
					yield(lease.Event{}, failed("watch", ended(ctx)))
					return
				}
				changes[i] = change{} // a slow loop keeps no more records than it must
				if !at.news(c) {
					continue
				}
				if !yield(c.Event, nil) {
					return
				}
			}
			if changes, err = w.take(ctx); err != nil {
				yield(lease.Event{}, err)
				return
			}
		}
	}
}

// moment is that of a snapshot.
type moment struct {
	from int64           // the last change that is in it
	over map[string]bool // names of what had ended, and had not been removed
}

// news reports whether a change is one of what the snapshot has told.
func (m moment) news(c change) bool {
	if c.seq > 0 && c.seq <= m.from {
		return false
	}
	ended := m.over[c.Record.Name]
	delete(m.over, c.Record.Name)
	return !ended || c.Kind != lease.EventDelete // its end is none: it was not in the snapshot
}

// subscribe registers the watcher and returns its snapshot, with the moment of that.
func (s *Store) subscribe(ctx context.Context, w *watcher) (snapshot []change, at moment, err error) {
	for {
		s.mu.Lock()
		early := s.follow.stop != nil // what is told from now on waits for the snapshot
		if early {
			s.follow.watchers[w] = struct{}{}
		}
		s.mu.Unlock()
		if snapshot, at, err = s.snapshot(ctx, w); err != nil {
			s.unsubscribe(w)
			return nil, at, err
		}
		s.mu.Lock()
		switch {
		case s.closed:
			err = failed("watch", errClosed)
		case s.dead != nil:
			err = failed("watch", s.dead)
		case early: // or it has ended, and w with it
		case s.follow.stop == nil:
			s.follow.beginLocked(s, w, at.from)
		case s.follow.cursor > at.from: // others began to be told meanwhile, of what is not in the snapshot
			s.mu.Unlock()
			continue
		default:
			s.follow.watchers[w] = struct{}{}
		}
		s.mu.Unlock()
		return snapshot, at, err
	}
}

// snapshot reads what stands, as any read does: however long that takes, it keeps nobody from
// writing. No deletion is to be told of what has ended and is not in it: see moment.
func (s *Store) snapshot(ctx context.Context, w *watcher) ([]change, moment, error) {
	var at moment // not a result: the caller may have left when it is written
	var last int64
	rows, err := s.read(ctx, "watch", func(v *view) ([]row, error) {
		at = moment{over: map[string]bool{}}
		const end = "SELECT coalesce((SELECT max(seq) FROM holdfast_change), 0), last FROM holdfast_meta"
		if err := v.get(end, nil, &at.from, &last); err != nil {
			return nil, err
		}
		tells := func(r row) bool {
			if r.over && strings.HasPrefix(r.Name, w.prefix) {
				at.over[r.Name] = true
			}
			return v.tells(r)
		}
		if w.deletions {
			const over = " WHERE l.session IN (SELECT id FROM holdfast_session WHERE ends <= ?)"
			_, err := v.rows("SELECT "+columns+over, v.now, tells, int64(v.now))
			return nil, err
		}
		return v.under(w.prefix, v.now, tells)
	})
	if err != nil {
		return nil, moment{}, err
	}
	var found []change
	for _, r := range rows {
		found = append(found, change{Event: r.event()})
	}
	return append(found, change{Event: lease.Event{Kind: lease.EventSynced, Revision: lease.Token(last)}}), at, nil
}

func (s *Store) unsubscribe(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow.removeLocked(w)
}

// event is the put of a row in a snapshot.
func (r row) event() lease.Event {
	if r.bad {
		return lease.Event{Kind: lease.EventBad, Record: lease.Record{Name: r.Name}}
	}
	return lease.Event{Kind: lease.EventPut, Record: r.Record, Revision: r.Token}
}

// Probe has every watch yield lease.EventProgress behind all that had happened.
func (s *Store) Probe(ctx context.Context) error {
	if err := lease.ValidateContext(ctx); err != nil {
		return failed("probe", err)
	}
	if s.place == nil {
		return failed("probe", errUnmade)
	}
	if ctx.Err() != nil {
		return failed("probe", ended(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return failed("probe", errClosed)
	case s.dead != nil:
		return failed("probe", s.dead)
	}
	s.follow.probes++
	s.follow.kick()
	return nil
}

// kick has watchers told at once of what this Store changed.
func (s *Store) kick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow.kick()
}

// concerns reports whether a watcher is to be told of an event.
func (w *watcher) concerns(e lease.Event) bool {
	if e.Kind == lease.EventProgress {
		return true
	}
	return strings.HasPrefix(e.Record.Name, w.prefix) && (!w.deletions || e.Kind == lease.EventDelete)
}
