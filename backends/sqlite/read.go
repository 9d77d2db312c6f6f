package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// Get returns the records of the names that are held.
func (s *Store) Get(ctx context.Context, names ...string) ([]store.Record, error) {
	names = slices.Clone(names)
	rows, err := s.read(ctx, "get", func(v *view) (rows []row, err error) {
		for _, name := range names {
			r, _, err := v.record(name, v.now)
			if err != nil {
				return nil, err
			}
			if v.tells(r) {
				rows = append(rows, r)
			}
		}
		return rows, nil
	})
	if err != nil {
		return nil, err
	}
	var found []store.Record
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
			bad := r.err()
			if bad != nil {
				bad = failed("list", bad)
			}
			if !yield(r.Record, bad) {
				return
			}
		}
	}
}

// of returns those of a session.
func (v *view) of(session store.SessionID) ([]row, error) {
	var ends int64
	err := v.get("SELECT ends FROM holdfast_session WHERE id = ?", []any{int64(session)}, &ends)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, store.Session{ID: session}.Gone()
	case err != nil:
		return nil, err
	case ends <= int64(v.now):
		v.over = !v.final
		return nil, store.Session{ID: session}.Gone()
	}
	return v.rows("SELECT "+columns+" WHERE l.session = ?", v.now, v.tells, int64(session))
}

// under returns those under a prefix that want says.
func (l *link) under(prefix string, now time.Duration, want func(row) bool) ([]row, error) {
	end, bounded := after(prefix)
	if !bounded {
		return l.rows("SELECT "+columns+" WHERE l.name >= ?", now, want, prefix)
	}
	return l.rows("SELECT "+columns+" WHERE l.name >= ? AND l.name < ?", now, want, prefix, end)
}

// after is the least text that is above all that begin with prefix; false if there is none.
func after(prefix string) (string, bool) {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return prefix[:i] + string([]byte{prefix[i] + 1}), true
		}
	}
	return "", false
}

// rows returns those that want says.
func (l *link) rows(q string, now time.Duration, want func(row) bool, args ...any) (found []row, err error) {
	err = l.each(q, args, func(scan func(...any) error) error {
		r, err := scanRecord(scan, now)
		if err == nil && want(r) {
			found = append(found, r)
		}
		return err
	})
	return found, err
}
