package sqlite

import (
	"context"
	"iter"
	"strings"

	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/store"
)

// Watch yields the records of the scope as they stood when the iteration began,
// store.EventSynced, and then every change, in the order in which they were made, over all
// names, by whatever process. A Store that is watched also removes what has expired, so that it is
// told when it happens.
//
// The iteration ends with the context's error, with ErrWatchOverrun, or when the Store ends. The
// loop's body may call the Store.
func (s *Store) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		w := feed.NewWatch[change](of.Prefix, of.Deletions, of.Progress, watchBuffer)
		changes, at, err := s.subscribe(ctx, w)
		if err != nil {
			yield(store.Event{}, err)
			return
		}
		defer s.unsubscribe(w)
		feed.Each(ctx, w, changes, func(c change) (store.Event, bool) { return c.Event, at.news(c) }, func(err error) error {
			if ctx.Err() != nil {
				err = ended(ctx)
			}
			return failed("watch", err)
		}, yield)
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
	return !ended || c.Kind != store.EventDelete // its end is none: it was not in the snapshot
}

// subscribe registers the watcher and returns its snapshot, with the moment of that.
func (s *Store) subscribe(ctx context.Context, w *watcher) (snapshot []change, at moment, err error) {
	for {
		s.mu.Lock()
		early := s.follow.stop != nil // changes from now on wait for the snapshot
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
			s.follow.beginLocked(w, at.from)
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

// snapshot reads what stands, as any read does: however long that takes, others may
// write. No deletion may be yielded of what has ended and is not in it: see moment.
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
			if r.over && strings.HasPrefix(r.Name, w.Prefix) {
				at.over[r.Name] = true
			}
			return v.tells(r)
		}
		if w.Deletions {
			const over = " WHERE l.session IN (SELECT id FROM holdfast_session WHERE ends <= ?)"
			_, err := v.rows("SELECT "+columns+over, v.now, tells, int64(v.now))
			return nil, err
		}
		return v.under(w.Prefix, v.now, tells)
	})
	if err != nil {
		return nil, moment{}, err
	}
	var found []change
	for _, r := range rows {
		found = append(found, change{Event: store.EventOf(r.Record, r.err())})
	}
	return append(found, change{Event: store.Event{Kind: store.EventSynced, Revision: store.Token(last)}}), at, nil
}

func (s *Store) unsubscribe(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow.removeLocked(w)
}
