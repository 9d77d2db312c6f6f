package postgres

import (
	"context"
	"iter"
	"strings"

	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/store"
)

// Watch implements store.Watcher: a snapshot as of one moment, in one request, and then the log of
// changes, which all watches of a Store read together. Changes of one name come in their order,
// those of several names in any. Expiries are made final, and told, by the Stores that watch: soon
// after the end if this one's watch runs. A snapshot has what ran out and was not made final yet.
//
// The iteration ends with the context's error, ErrWatchOverrun, ErrWatchLost, one that is
// store.ErrDenied, or when the database could not be asked for 10 s. The loop's body may call the
// Store.
func (s *Store) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		failed := func(err error) { yield(store.Event{}, s.explain(ctx, "watch", err)) }
		if err := s.made(ctx); err != nil {
			yield(store.Event{}, err)
			return
		}
		if ctx.Err() != nil {
			failed(ctx.Err())
			return
		}
		w := feed.NewWatch[feed.Change](of, watchBuffer)
		r := s.hub.Subscribe(w, s.follow)
		defer s.hub.Unsubscribe(r, w)
		if !r.Begun(ctx) {
			failed(ctx.Err())
			return
		}
		floor := r.Floor.Load()
		told, first, err := s.snapshot(ctx, w, floor)
		if err != nil {
			yield(store.Event{}, err)
			return
		}
		feed.Each(ctx, w, append(first, feed.Change{Event: store.Event{Kind: store.EventSynced}}), func(c feed.Change) (store.Event, bool) {
			return c.Event, c.Seq == 0 || c.Seq > floor && !told[c.Seq]
		}, func(err error) error { return s.explain(ctx, "watch", err) }, yield)
	}
}

// follow starts what reads for the watches of one time.
func (s *Store) follow(run *feed.Run) {
	r := &reader{Run: run, conn: &s.conn, house: s.chores()}
	go r.loop()
	if s.listener != nil {
		go (&ear{&s.conn, s.listener, r.hears}).listen(run.Ctx)
	}
}

// snapshot reads the records under the watch's prefix, unless deletions alone are wanted, and which
// changes after floor they include.
func (s *Store) snapshot(ctx context.Context, w *feed.Watch[feed.Change], floor int64) (
	told map[int64]bool, recs []feed.Change, err error) {
	told = map[int64]bool{}
	query := "SELECT coalesce(seq, 0), " + columns + times + " FROM " + s.function("watch_snapshot") + "($1::text, $2::boolean, $3::bigint)"
	err = s.call(ctx, "watch", query, []any{longestText(w.Prefix), !w.Deletions, floor}, func(scan db.Scan) error {
		var seq int64
		var r row
		if err := scan(r.dest(&seq)...); err != nil {
			return err
		}
		if seq != 0 {
			told[seq] = true
		} else if strings.HasPrefix(r.name, w.Prefix) {
			if r.format == format {
				s.seen.Saw(r.rev)
			}
			recs = append(recs, feed.Change{Event: store.EventOf(r.record())})
		}
		return nil
	})
	return told, recs, err
}
