package sqlite

import (
	"context"
	"iter"

	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/store"
)

// Watch yields the records of the scope as they stood when the iteration began,
// store.EventSynced, and then every change, in the order in which they were made, over all
// names, by whatever process. A Store that is watched also removes what has expired, so that watches
// hear of it when it happens, also of what had expired before and was not in the snapshot.
//
// The iteration ends with the context's error, with ErrWatchOverrun, or when the Store ends. The
// loop's body may call the Store.
func (s *Store) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		w := feed.NewWatch[feed.Change](of, watchBuffer)
		var r *feed.Run
		var changes []feed.Change
		var at int64
		err := s.run(ctx, "watch", func(waits context.Context) (err error) {
			r = s.hub.Subscribe(w, func(r *feed.Run) { s.running.Go((&reader{s: &s.transactions, run: r}).loop) })
			if !r.Begun(waits) {
				return ended(waits)
			}
			changes, at, err = s.snapshot(waits, w)
			return err
		})
		if r != nil {
			defer s.hub.Unsubscribe(r, w)
		}
		if err != nil {
			yield(store.Event{}, err)
			return
		}
		feed.Each(ctx, w, changes, func(c feed.Change) (store.Event, bool) {
			return c.Event, c.Seq == 0 || c.Seq > at
		}, func(err error) error { return failed("watch", err) }, yield)
	}
}

// snapshot reads what stands, as any read does: however long that takes, others may write. The last
// change that is in it is at.
func (s *Store) snapshot(ctx context.Context, w *feed.Watch[feed.Change]) (found []feed.Change, at int64, err error) {
	var last store.Token
	rows, err := s.read(ctx, "watch", func(v *view) ([]row, error) {
		const end = "SELECT coalesce((SELECT max(seq) FROM holdfast_change), 0), last FROM holdfast_meta"
		if err := v.get(end, nil, &at, &last); err != nil || w.Deletions {
			return nil, err
		}
		return v.under(w.Prefix, v.now, v.tells)
	})
	for _, r := range rows {
		found = append(found, feed.Change{Event: store.EventOf(r.Record, r.err())})
	}
	return append(found, feed.Change{Event: store.Event{Kind: store.EventSynced, Revision: last}}), at, err
}
