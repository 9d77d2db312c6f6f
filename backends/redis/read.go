package redis

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/store"
)

// Get implements store.Store, in one request. Record.Left is by the server's clock.
func (s *Store) Get(ctx context.Context, names ...string) ([]store.Record, error) {
	const op = "get"
	b, err := newBatch(op, len(names))
	if err != nil {
		return nil, err
	}
	for i, n := range slices.Compact(slices.Sorted(slices.Values(names))) {
		b.add(op, i, nil, n)
	}
	reply, err := s.call(ctx, op, getScript, -1, b.args...)
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

// List implements store.Store. By prefix each request looks at some 500 names, and all names are looked at;
// those of a session are found by an index, 500 in a request. Each page is of its own moment; what
// stands from the first to the last is yielded. The loop's body may call the Store.
func (s *Store) List(ctx context.Context, q store.Query) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		pages := s.pages(ctx, "list", q.Prefix)
		if q.Session != 0 {
			pages = s.own(ctx, q.Session)
		}
		for p, err := range pages {
			if err != nil {
				yield(store.Record{}, err)
				return
			}
			for _, r := range p.rows {
				if ctx.Err() != nil {
					yield(store.Record{}, failed("list", ended(ctx)))
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

// pages reads the names under a prefix. HSCAN returns all that stand from its begin to its end, and
// some twice: of these the first is yielded.
func (s *Store) pages(ctx context.Context, op, prefix string) iter.Seq2[page, error] {
	return func(yield func(page, error) bool) {
		told := map[string]bool{}
		for cursor := "0"; ; {
			got, err := s.call(ctx, op, listScript, -1, cursor, pattern(prefix))
			if err != nil {
				yield(page{}, err)
				return
			}
			p := page{rowsOf(got.list), got.rev}
			p.rows = slices.DeleteFunc(p.rows, func(r row) bool {
				twice := told[r.name]
				told[r.name] = true
				return twice
			})
			cursor = got.said
			if !yield(p, nil) || cursor == "0" {
				return
			}
		}
	}
}

// glob are the characters of patterns of HSCAN that mean something.
var glob = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

func pattern(prefix string) string { return glob.Replace(prefix) + "*" }

// own reads the names of a session, in the order of their bytes.
func (s *Store) own(ctx context.Context, session store.SessionID) iter.Seq2[page, error] {
	const op = "list session"
	return func(yield func(page, error) bool) {
		for after := ""; ; {
			got, err := s.call(ctx, op, ownScript, -1, int64(session), after)
			if err == nil && got.said == "gone" {
				err = failed(op, fmt.Errorf("session %d: %w", session, store.ErrSessionGone))
			}
			if !yield(page{rows: rowsOf(got.list)}, err) || err != nil || got.said == "" {
				return
			}
			after = got.said[1:] // behind '>'
		}
	}
}
