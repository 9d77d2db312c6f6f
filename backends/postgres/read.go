package postgres

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

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
func (s *Store) Get(ctx context.Context, names ...string) (recs []store.Record, err error) {
	// Nothing stands under a name that is none.
	valid := slices.DeleteFunc(append([]string{}, names...), func(n string) bool { return store.ValidateName(n) != nil })
	err = s.call(ctx, "get", "SELECT "+columns+times+" FROM "+s.function("get")+"($1::text[])",
		[]any{valid}, func(scan db.Scan) error {
			var r row
			err := scan(r.dest()...)
			rec, bad := r.record()
			if err == nil && bad == nil {
				s.seen.Saw(r.rev)
			}
			recs = append(recs, rec)
			return err
		})
	if err != nil {
		return nil, err
	}
	return recs, nil
}

// List implements store.Store, with one request for each 2000 records, each of its own moment. What
// stands from the first to the last is yielded. The loop's body may call the Store.
func (s *Store) List(ctx context.Context, q store.Query) iter.Seq2[store.Record, error] {
	op, function, of := "list", "list($1::text", any(longestText(q.Prefix))
	if q.Session != 0 { // by an index
		op, function, of = "list session", "list_session($1::bigint", int64(q.Session)
	}
	query := "SELECT " + columns + times + " FROM " + s.function(function) + ", $2::text, $3::int)"
	return func(yield func(store.Record, error) bool) {
		for after, more := "", true; more; { // each page begins behind the last name of the one before
			var page []row
			more = false
			over := false
			err := s.call(ctx, op, query, []any{of, after, int64(pageSize)}, func(scan db.Scan) error {
				var r row
				if err := scan(r.dest()...); err != nil {
					return err
				}
				switch {
				case r.format == formatPage:
					after, more = r.name, true
				case r.format == formatOver:
					over = true // no error: that could undo what has made it final
				case strings.HasPrefix(r.name, q.Prefix):
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
				if ctx.Err() != nil {
					yield(store.Record{}, s.explain(ctx, op, ctx.Err()))
					return
				}
				rec, err := page[i].record()
				if err == nil {
					s.seen.Saw(page[i].rev)
				}
				if !yield(rec, err) {
					return
				}
			}
		}
	}
}

// longestText is the longest beginning of prefix that a text of the database can have, or a shorter
// one: what has the prefix has this, too.
func longestText(prefix string) string {
	if i := strings.IndexFunc(prefix, func(r rune) bool { return r == 0 || r == utf8.RuneError }); i >= 0 {
		return prefix[:i]
	}
	return prefix
}
