package redis

import (
	"context"
	"iter"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/store"
)

// Watch implements store.Watcher: a listing, and then the stream of changes, which all watches of a
// Store read together. Changes of one name come in their order, those of several names in any. The
// deletion of a record that has run out follows soon after its end.
//
// The iteration ends with the context's error, one that is store.ErrDenied, or another if more than
// 65 536 changes waited for the loop, if the stream does not reach back far enough, if the server's
// data was lost or replaced, or if it could not be asked for 10 s. The loop's body may call the
// Store.
func (s *Store) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		end := func(err error) {
			if ctx != nil && ctx.Err() != nil {
				err = boundary.Ended(ctx)
			}
			yield(store.Event{}, failed("watch", err))
		}
		if err := s.mayRun(ctx); err != nil {
			end(err)
			return
		}
		w := feed.NewWatch[feed.Change](of, watchBuffer)
		var closed error
		r := s.hub.Subscribe(w, func(r *feed.Run) { closed = s.enter((&reader{Run: r, store: s}).loop) })
		defer s.hub.Unsubscribe(r, w)
		if closed != nil {
			r.Fail(closed)
		}
		if !r.Begun(ctx) {
			end(ctx.Err())
			return
		}
		var first snapshot
		if !of.Deletions {
			first.told = map[string]int64{}
			for p, err := range s.pages(ctx, "watch", listScript, pattern(of.Prefix)) {
				if err != nil {
					yield(store.Event{}, err)
					return
				}
				first.add(p)
				for _, row := range p.rows {
					if ctx.Err() != nil {
						end(ctx.Err())
						return
					}
					if !yield(store.EventOf(row.record()), nil) {
						return
					}
				}
			}
		}
		synced := []feed.Change{{Event: store.Event{Kind: store.EventSynced}}}
		feed.Each(ctx, w, synced, first.tells, func(err error) error { return failed("watch", err) }, yield)
	}
}

// snapshot is what a watch has yielded at its beginning. Its pages are of several moments, and the
// changes between them are read as well.
type snapshot struct {
	began, ended int64 // the revisions of the first page and the last
	// told has each name that stands by it, with its page's revision; nil: it is not needed any more.
	told map[string]int64
}

func (s *snapshot) add(p page) {
	if s.began == 0 {
		s.began = p.rev
	}
	s.ended = p.rev
	for _, r := range p.rows {
		s.told[r.name] = p.rev
	}
}

// tells passes on a change that the snapshot does not include.
func (s *snapshot) tells(c feed.Change) (store.Event, bool) {
	if c.Seq == 0 {
		return c.Event, true
	}
	if c.Seq > s.ended {
		s.told = nil
		return c.Event, true
	}
	name := c.Record.Name
	at, stands := s.told[name]
	switch {
	case c.Seq <= max(s.began, at):
		return c.Event, false
	case c.Kind == store.EventDelete:
		delete(s.told, name)
		return c.Event, stands // else a page has come too late for it
	}
	s.told[name] = c.Seq
	return c.Event, true
}
