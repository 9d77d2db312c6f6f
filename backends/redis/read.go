package redis

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/store"
)

// Get implements store.Store, in one request. Record.Left is by the server's clock.
func (s *Store) Get(ctx context.Context, names ...string) ([]store.Record, error) {
	var args []any
	for _, n := range slices.Compact(slices.Sorted(slices.Values(names))) {
		args = append(args, n)
	}
	reply, err := s.call(ctx, "get", getScript, args...)
	if err != nil {
		return nil, err
	}
	var recs []store.Record
	for _, r := range rowsOf(reply.list) {
		rec, _ := r.record() // a bad one has its name
		recs = append(recs, rec)
	}
	return recs, nil
}

// List implements store.Store. By prefix each request looks at some 250 names, and all names are
// looked at; those of a session are found by an index, 250 in a request. Each page is of its own
// moment; what stands from the first to the last is yielded. The loop's body may call the Store.
func (s *Store) List(ctx context.Context, q store.Query) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		pages := s.pages(ctx, "list", listScript, pattern(q.Prefix))
		if q.Session != 0 {
			pages = s.pages(ctx, "list session", ownScript, int64(q.Session))
		}
		for p, err := range pages {
			if err != nil {
				yield(store.Record{}, err)
				return
			}
			for _, r := range p.rows {
				if ctx.Err() != nil {
					yield(store.Record{}, failed("list", boundary.Ended(ctx)))
					return
				}
				if !yield(r.record()) {
					return
				}
			}
		}
	}
}

// page is what one request has found, and the revision of its moment.
type page struct {
	rows []row
	rev  int64
}

// pages reads page by page, each behind where the one before says that it ended. HSCAN returns all
// that stand from its begin to its end, and some twice: of these the first is yielded.
func (s *Store) pages(ctx context.Context, op string, of *script, what any) iter.Seq2[page, error] {
	return func(yield func(page, error) bool) {
		found := map[string]bool{}
		for after := ""; ; {
			got, err := s.call(ctx, op, of, what, after)
			if err == nil && got.said == "gone" {
				err = failed(op, fmt.Errorf("session %v: %w", what, store.ErrSessionGone))
			}
			rows := slices.DeleteFunc(rowsOf(got.list), func(r row) bool {
				twice := found[r.name]
				found[r.name] = true
				return twice
			})
			var more bool
			if after, more = strings.CutPrefix(got.said, ">"); !yield(page{rows, got.rev}, err) || err != nil || !more {
				return
			}
		}
	}
}

// glob are the characters that mean something in patterns of HSCAN.
var glob = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

func pattern(prefix string) string { return glob.Replace(prefix) + "*" }
