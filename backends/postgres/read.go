package postgres

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
	"github.com/holdfast-go/holdfast/store"
)

// The formats of rows of an answer that are no records; a row of the database can't have them.
const (
	formatPage = 100_000 // the last name of a full page
	formatOver = 100_001 // the session is over
)

// pageSize is how many names one request of a listing reads.
const pageSize = 2000

// Get implements store.Store, in one request. Record.Left is by the database's clock.
func (s *Store) Get(ctx context.Context, names ...string) ([]store.Record, error) {
	var valid []string
	for _, n := range names {
		if store.ValidateName(n) == nil { // nothing stands under any other
			valid = append(valid, n)
		}
	}
	var recs []store.Record
	err := s.call(ctx, "get", "SELECT "+columns+" FROM "+s.function("get")+"($1::text[])",
		[]any{db.Array(valid, func(n string) string { return n })}, func(scan db.Scan) error {
			var r row
			if err := scan(r.dest()...); err != nil {
				return err
			}
			rec, err := r.record()
			if err == nil {
				s.history.saw(r.rev)
			} else {
				s.log.Info("not a lease record, left alone", zap.Error(err))
			}
			recs = append(recs, rec)
			return nil
		})
	if err != nil {
		return nil, err
	}
	return recs, nil
}

// List implements store.Store, with one request for each 2000 records, each of its own moment. What
// stands from the first to the last is yielded. The loop's body may call the Store.
func (s *Store) List(ctx context.Context, q store.Query) iter.Seq2[store.Record, error] {
	if q.Session != 0 { // by an index
		query := "SELECT " + columns + " FROM " + s.function("list_session") + "($1::bigint, $2::text, $3::int)"
		return s.pages(ctx, "list session", query, int64(q.Session), func(*row) bool { return true })
	}
	valid := longestText(q.Prefix)
	return s.pages(ctx, "list", "SELECT "+columns+" FROM "+s.function("list")+"($1::text, $2::text, $3::int)", valid,
		func(r *row) bool { return strings.HasPrefix(r.name, q.Prefix) })
}

// longestText is the longest beginning of prefix that a text of the database can have: what has
// the prefix has this, too.
func longestText(prefix string) string {
	for i, r := range prefix {
		if r == 0 {
			return prefix[:i]
		}
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(prefix[i:]); size == 1 {
				return prefix[:i]
			}
		}
	}
	return prefix
}

// pages reads what of begins, page by page, each behind the last name of the one before.
func (s *Store) pages(ctx context.Context, op, query string, of any,
	wanted func(*row) bool) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		for after, more := "", true; more; {
			var page []row
			more = false
			over := false
			err := s.call(ctx, op, query, []any{of, after, int64(pageSize)}, func(scan db.Scan) error {
				var r row
				if err := scan(r.dest()...); err != nil {
					return err
				}
				switch r.format {
				case formatPage:
					after, more = r.name, true
				case formatOver:
					over = true // no error: that could undo what has made it final
				default:
					page = append(page, r)
				}
				return nil
			})
			if err == nil && over {
				err = fmt.Errorf("postgres: %s: %w", op, store.ErrSessionGone)
			}
			if err != nil {
				yield(store.Record{}, err)
				return
			}
			for i := range page {
				if !wanted(&page[i]) {
					continue
				}
				if ctx.Err() != nil {
					yield(store.Record{}, s.explain(ctx, op, ctx.Err()))
					return
				}
				rec, err := page[i].record()
				if err == nil {
					s.history.saw(page[i].rev)
				}
				if !yield(rec, err) {
					return
				}
			}
		}
	}
}
