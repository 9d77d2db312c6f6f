package postgres

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
	"github.com/holdfast-go/holdfast/store"
)

// decided is the answer of the functions for one name.
type decided struct {
	ord      int64 // from 1
	answer   string
	replaced int64
	row
}

func (d *decided) dest() []any {
	return append([]any{&d.ord, &d.answer, &d.replaced}, d.row.dest()...)
}

const decidedColumns = "ord::bigint, answer, coalesce(replaced, 0), " +
	"coalesce(name, ''), coalesce(format, 0)::bigint, session, rev, nonce, meta, " +
	"owner, incarnation, address, ttl, left_ms, since_us"

// ask decides what is asked of names, in rounds: a name that comes twice is asked for in two of
// them, and one for which another request is under way once more. request sends those of the
// indices, and gives what was decided of each to its second argument.
func (s *Store) ask(ctx context.Context, op string, names []string, outs []store.Outcome, pending []int,
	request func(pending []int, row func(db.Scan) error) error, take func(i int, d *decided)) ([]store.Outcome, error) {
	var pause backoff
	for len(pending) > 0 {
		var now, later []int
		seen := make(map[string]bool, len(pending))
		for _, i := range pending {
			if seen[names[i]] {
				later = append(later, i)
			} else {
				seen[names[i]] = true
				now = append(now, i)
			}
		}
		busy, guarded, changed := []int{}, []int{}, false
		var answers []decided
		err := request(now, func(scan db.Scan) error {
			var d decided
			err := scan(d.dest()...)
			answers = append(answers, d)
			if d.format == format { // another's is no revision of ours
				s.history.saw(d.rev)
			}
			return err
		})
		if err == nil && (len(answers) == 1 && answers[0].answer == "gone" && answers[0].ord == 0) {
			err = fmt.Errorf("postgres: %s: %w", op, store.ErrSessionGone)
		}
		if err == nil && len(answers) != len(now) {
			err = fmt.Errorf("postgres: %s: %w: %d answers for %d names", op, store.ErrInconsistent, len(answers), len(now))
		}
		if err != nil {
			return nil, partly(err, outs)
		}
		for k := range answers {
			d := &answers[k]
			i := now[d.ord-1]
			if d.answer == "busy" {
				busy = append(busy, i)
				continue
			}
			if d.answer == "guarded" {
				guarded = append(guarded, i)
			}
			take(i, d)
			changed = changed || outs[i].OK
		}
		if changed {
			s.changed()
		}
		// A name that is guarded is waited for only where no other waits with it.
		if len(guarded) == len(outs) && pause.waited < guardWait {
			busy = guarded
		}
		if pending = append(busy, later...); len(busy) == 0 {
			continue
		}
		if err := pause.wait(ctx); err != nil {
			if len(busy) == len(outs) && len(guarded) == len(outs) {
				return outs, nil // that is what is known of them
			}
			return nil, partly(s.explain(ctx, op, err), outs)
		}
	}
	return outs, nil
}

// outcome is what was decided of a name, but for answers that op alone has.
func (d *decided) outcome(op string) store.Outcome {
	if d.answer == "free" {
		return store.Outcome{}
	}
	rec, err := d.record()
	if err != nil {
		err = fmt.Errorf("postgres: %s: %w", op, err)
	}
	return store.Outcome{OK: d.answer == "done" && err == nil, Record: rec, Err: err}
}

// failed is the outcome of a name of which nothing was applied, for that reason.
func (d *decided) failed(op, name string, err error) store.Outcome {
	out := d.outcome(op)
	out.Err = fmt.Errorf("postgres: %s %q: %w", op, name, err)
	return out
}

// Acquire implements store.Store: one request, and others for names for which another's request
// is under way at the moment. What ran out stands while a transaction guards it (Guard): a claim
// of it is refused by the record that ran out, at once if it is one of several, else after up to
// 250 ms.
func (s *Store) Acquire(ctx context.Context, want store.Session, claims []store.Claim) ([]store.Outcome, error) {
	if err := s.made(ctx); err != nil {
		return nil, err
	}
	outs, names, metas := make([]store.Outcome, len(claims)), make([]string, len(claims)), make([]*string, len(claims))
	var pending []int
	for i, c := range claims {
		err := limits.ValidateClaim(c)
		if err == nil {
			metas[i], err = pack(c.Metadata)
		}
		if err != nil {
			outs[i].Err = fmt.Errorf("postgres: acquire: %w", err)
			continue
		}
		names[i], pending = c.Name, append(pending, i)
	}
	query := "SELECT " + decidedColumns + " FROM " + s.function("acquire") +
		"($1::bigint, $2::text, $3::text[], $4::bigint[], $5::bigint[], $6::text[], " +
		"$7::text[], $8::bigint[], $9::bigint[], $10::bigint)"
	request := func(pending []int, row func(db.Scan) error) error {
		num := func(f func(store.Claim) int64) []int64 {
			return db.Array(pending, func(i int) int64 { return f(claims[i]) })
		}
		return s.call(ctx, "acquire", query, []any{int64(want.ID), db.Escape(want.Owner.Incarnation),
			db.Array(pending, func(i int) string { return names[i] }),
			num(func(c store.Claim) int64 { return int64(c.Nonce) }),
			num(func(c store.Claim) int64 { return int64(c.Supersedes) }),
			db.Array(pending, func(i int) *string { return metas[i] }),
			db.Array(pending, func(i int) *string {
				if on := claims[i].While; on != (store.Held{}) {
					return &on.Name
				}
				return nil
			}),
			num(func(c store.Claim) int64 { return int64(c.While.Token) }),
			num(func(c store.Claim) int64 { return int64(c.While.Nonce) }),
			s.history.seen.Load(),
		}, row)
	}
	return s.ask(ctx, "acquire", names, outs, pending, request, func(i int, d *decided) {
		if d.answer == "parent" {
			err := fmt.Errorf("postgres: acquire %q: %w: %q", names[i], store.ErrParentLost, claims[i].While.Name)
			outs[i] = store.Outcome{Err: err}
			return
		}
		outs[i] = d.outcome("acquire")
		outs[i].Replaced = store.Token(d.replaced)
	})
}

// Release implements store.Store, in one request. What a transaction guards is not released:
// Outcome.Err is ErrGuarded, at once if it is one of several, else after up to 250 ms.
func (s *Store) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	if err := s.made(ctx); err != nil {
		return nil, err
	}
	outs, names := make([]store.Outcome, len(held)), make([]string, len(held))
	var pending []int
	for i, h := range held {
		if store.ValidateName(h.Name) == nil { // nothing stands under any other
			names[i], pending = h.Name, append(pending, i)
		}
	}
	query := "SELECT " + decidedColumns + " FROM " + s.function("release") + "($1::text[], $2::bigint[], $3::bigint[])"
	request := func(pending []int, row func(db.Scan) error) error {
		return s.call(ctx, "release", query, []any{db.Array(pending, func(i int) string { return names[i] }),
			db.Array(pending, func(i int) int64 { return int64(held[i].Token) }),
			db.Array(pending, func(i int) int64 { return int64(held[i].Nonce) })}, row)
	}
	return s.ask(ctx, "release", names, outs, pending, request, func(i int, d *decided) {
		switch d.answer {
		case "done":
			outs[i] = store.Outcome{OK: true}
		case "guarded":
			outs[i] = d.failed("release", names[i], ErrGuarded)
		default:
			outs[i] = d.outcome("release")
			outs[i].Err = nil // whatever holds the name, it is not that ownership
		}
	})
}

// Transfer implements store.Transferrer, in one request. What a transaction guards is not moved:
// Outcome.Err is ErrGuarded, at once if it is one of several, else after up to 250 ms.
func (s *Store) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	if err := s.made(ctx); err != nil {
		return nil, err
	}
	outs, names, metas := make([]store.Outcome, len(moves)), make([]string, len(moves)), make([]*string, len(moves))
	var pending []int
	for i, m := range moves {
		err := limits.ValidateTransfer(m)
		if err == nil && m.Metadata != nil {
			if metas[i], err = pack(m.Metadata); metas[i] == nil && err == nil {
				none := "{}"
				metas[i] = &none
			}
		}
		if err != nil {
			outs[i].Err = fmt.Errorf("postgres: transfer: %w", err)
			continue
		}
		names[i], pending = m.Name, append(pending, i)
	}
	query := "SELECT " + decidedColumns + " FROM " + s.function("transfer") +
		"($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::text[], $8::bigint)"
	request := func(pending []int, row func(db.Scan) error) error {
		num := func(f func(store.Transfer) int64) []int64 {
			return db.Array(pending, func(i int) int64 { return f(moves[i]) })
		}
		return s.call(ctx, "transfer", query, []any{db.Array(pending, func(i int) string { return names[i] }),
			num(func(m store.Transfer) int64 { return int64(m.Token) }),
			num(func(m store.Transfer) int64 { return int64(m.Nonce) }),
			num(func(m store.Transfer) int64 { return int64(m.To.Session) }),
			db.Array(pending, func(i int) string { return db.Escape(moves[i].To.Owner.Incarnation) }),
			num(func(m store.Transfer) int64 { return int64(m.To.Nonce) }),
			db.Array(pending, func(i int) *string { return metas[i] }), s.history.seen.Load()}, row)
	}
	return s.ask(ctx, "transfer", names, outs, pending, request, func(i int, d *decided) {
		switch d.answer {
		case "gone":
			to := moves[i].To
			outs[i] = d.failed("transfer", names[i], store.Session{ID: to.Session, Owner: to.Owner}.Gone())
		case "guarded":
			outs[i] = d.failed("transfer", names[i], ErrGuarded)
		default:
			outs[i] = d.outcome("transfer")
		}
	})
}
