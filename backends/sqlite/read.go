package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// Get returns the records of the names that are held.
func (s *Store) Get(ctx context.Context, names ...string) (found []store.Record, err error) {
	rows, err := s.read(ctx, "get", func(v *view) (rows []row, err error) {
		for _, name := range names {
			r, there, err := v.record(name, v.now)
			if err != nil {
				return nil, err
			}
			if there && v.tells(r) {
				rows = append(rows, r)
			}
		}
		return rows, nil
	})
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		found = append(found, r.Record)
	}
	return found, nil
}

// List yields the records as they stood, all at one moment, when the iteration began. It reads no
// records of others than the session, if there is one. The loop's body may call the Store.
func (s *Store) List(ctx context.Context, q store.Query) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		found, err := s.read(ctx, "list", func(v *view) ([]row, error) {
			if q.Session != 0 {
				return v.of(q.Session)
			}
			return v.under(q.Prefix, v.now, v.tells)
		})
		if err != nil {
			yield(store.Record{}, err)
			return
		}
		for _, r := range found {
			if ctx.Err() != nil {
				yield(store.Record{}, failed("list", ended(ctx)))
				return
			}
			if !yield(r.Record, failed("list", r.err())) {
				return
			}
		}
	}
}

// of returns those of a session.
func (v *view) of(session store.SessionID) ([]row, error) {
	var ends time.Duration
	err := v.get("SELECT ends FROM holdfast_session WHERE id = ?", []any{int64(session)}, &ends)
	switch {
	case err == nil && ends > v.now:
		return v.rows(" WHERE session = ?", v.now, v.tells, int64(session))
	case err == nil:
		v.over = !v.final
	case !errors.Is(err, sql.ErrNoRows):
		return nil, err
	}
	return nil, store.Session{ID: session}.Gone()
}

// under returns those under a prefix that want says. No name has the byte 0xff, which is not of UTF-8.
func (l *link) under(prefix string, now time.Duration, want func(row) bool) ([]row, error) {
	return l.rows(" WHERE name >= ? AND name < ?", now, want, prefix, prefix+"\xff")
}
