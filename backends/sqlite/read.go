package sqlite

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// Get returns the records of the names that are held.
func (s *Store) Get(ctx context.Context, names ...string) ([]lease.Record, error) {
	names = slices.Clone(names)
	var found []lease.Record
	err := s.read(ctx, "get", func(l *link, now time.Duration) error {
		for _, name := range names {
			r, _, err := l.record(name, now)
			if err != nil {
				return err
			}
			if r.stands {
				found = append(found, r.Record)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// List yields the records under prefix as they stood, all at one moment, when the iteration
// began. The loop's body may call the Store.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[lease.Record, error] {
	return s.list(ctx, "list", func(l *link, now time.Duration) (rows []row, err error) {
		return l.under(prefix, now)
	})
}

// ListSession yields the records of the session as they stood, all at one moment, when the
// iteration began; lease.ErrSessionGone if it is not open. It reads no others. The loop's body
// may call the Store.
func (s *Store) ListSession(ctx context.Context, want lease.Session) iter.Seq2[lease.Record, error] {
	return s.list(ctx, "list session", func(l *link, now time.Duration) (rows []row, err error) {
		var open int
		err = l.get("SELECT count(*) FROM holdfast_session WHERE id = ? AND ends > ?", []any{int64(want.ID), int64(now)}, &open)
		if err == nil && (open == 0 || want.Handle != "") {
			err = gone(want)
		}
		if err != nil {
			return nil, err
		}
		return l.rows("SELECT "+columns+" WHERE l.session = ?", now, int64(now), int64(want.ID))
	})
}

func (s *Store) list(ctx context.Context, op string, read func(l *link, now time.Duration) ([]row, error)) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		var found []row
		err := s.read(ctx, op, func(l *link, now time.Duration) (err error) {
			found, err = read(l, now)
			return err
		})
		if err != nil {
			yield(lease.Record{}, err)
			return
		}
		for _, r := range found {
			if ctx.Err() != nil {
				yield(lease.Record{}, failed(op, ended(ctx)))
				return
			}
			bad := r.err()
			if bad != nil {
				bad = failed(op, bad)
			}
			if !yield(r.Record, bad) {
				return
			}
		}
	}
}

// under returns what stands under a prefix.
func (l *link) under(prefix string, now time.Duration) ([]row, error) {
	end, bounded := after(prefix)
	if !bounded {
		return l.rows("SELECT "+columns+" WHERE l.name >= ?", now, int64(now), prefix)
	}
	return l.rows("SELECT "+columns+" WHERE l.name >= ? AND l.name < ?", now, int64(now), prefix, end)
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

// rows returns those that stand.
func (l *link) rows(q string, now time.Duration, args ...any) (found []row, err error) {
	err = l.each(q, args, func(scan func(...any) error) error {
		r, err := scanRecord(scan, now)
		if err == nil && r.stands {
			found = append(found, r)
		}
		return err
	})
	return found, err
}
