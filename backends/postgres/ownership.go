package postgres

import (
	"context"
	"errors"
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

// verb is a function that decides what is asked of names.
type verb[T any] struct {
	name, parameters string
	of               func(T) string // the name that is asked for
	check            func(T) error  // what this refuses is not asked
	args             func([]T) []any
	outcome          func(T, *decided) store.Outcome
}

// ask decides what is asked of names, in rounds: a name that comes twice is asked for in two of
// them, and one for which another request is under way once more.
func ask[T any](ctx context.Context, s *Store, v verb[T], all []T) ([]store.Outcome, error) {
	if err := s.made(ctx); err != nil {
		return nil, err
	}
	outs := make([]store.Outcome, len(all))
	var pending []int
	for i, what := range all {
		if err := v.check(what); err != nil {
			outs[i].Err = fmt.Errorf("postgres: %s: %w", v.name, err)
			continue
		}
		pending = append(pending, i)
	}
	query := "SELECT ord::bigint, answer, coalesce(replaced, 0), " + columns + times +
		" FROM " + s.function(v.name) + "(" + v.parameters + ")"
	var pause backoff
	for len(pending) > 0 {
		var now, later []int
		seen := make(map[string]bool, len(pending))
		for _, i := range pending {
			if name := v.of(all[i]); seen[name] {
				later = append(later, i)
			} else {
				seen[name] = true
				now = append(now, i)
			}
		}
		busy, guarded, changed := []int{}, []int{}, false
		var answers []decided
		args := v.args(db.Array(now, func(i int) T { return all[i] }))
		err := s.call(ctx, v.name, query, args, func(scan db.Scan) error {
			var d decided
			err := scan(d.dest(&d.ord, &d.answer, &d.replaced)...)
			answers = append(answers, d)
			if d.format == format { // another's is no revision of ours
				s.seen.Saw(d.rev)
			}
			return err
		})
		if err == nil && (len(answers) == 1 && answers[0].answer == "gone" && answers[0].ord == 0) {
			err = fmt.Errorf("postgres: %s: %w", v.name, store.ErrSessionGone)
		}
		if err == nil && len(answers) != len(now) {
			err = fmt.Errorf("postgres: %s: %w: %d answers for %d names", v.name, store.ErrInconsistent, len(answers), len(now))
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
			outs[i] = v.outcome(all[i], d)
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
			return nil, partly(s.explain(ctx, v.name, err), outs)
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
func (d *decided) failed(op string, err error) store.Outcome {
	out := d.outcome(op)
	out.Err = fmt.Errorf("postgres: %s %q: %w", op, d.name, err)
	return out
}

// Acquire implements store.Store: one request, and others for names for which another's request
// is under way at the moment. What ran out stands while a transaction guards it (Guard): a claim
// of it is refused by the record that ran out, at once if it is one of several, else after up to
// 250 ms.
func (s *Store) Acquire(ctx context.Context, want store.Session, claims []store.Claim) ([]store.Outcome, error) {
	name := func(c store.Claim) string { return c.Name }
	return ask(ctx, s, verb[store.Claim]{
		name: "acquire", of: name, check: limits.ValidateClaim,
		parameters: "$1::bigint, $2::text, $3::text[], $4::bigint[], $5::bigint[], $6::text[], " +
			"$7::text[], $8::bigint[], $9::bigint[], $10::bigint",
		args: func(now []store.Claim) []any {
			return []any{
				int64(want.ID), db.Escape(want.Owner.Incarnation), db.Array(now, name),
				db.Array(now, func(c store.Claim) int64 { return int64(c.Nonce) }),
				db.Array(now, func(c store.Claim) int64 { return int64(c.Supersedes) }),
				db.Array(now, func(c store.Claim) *string { return pack(c.Metadata) }),
				db.Array(now, func(c store.Claim) *string {
					if c.While == (store.Held{}) {
						return nil
					}
					return &c.While.Name
				}),
				db.Array(now, func(c store.Claim) int64 { return int64(c.While.Token) }),
				db.Array(now, func(c store.Claim) int64 { return int64(c.While.Nonce) }),
				s.seen.Highest(),
			}
		},
		outcome: func(c store.Claim, d *decided) store.Outcome {
			if d.answer == "parent" {
				return store.Outcome{Err: fmt.Errorf("postgres: acquire %q: %w: %q", c.Name, store.ErrParentLost, c.While.Name)}
			}
			out := d.outcome("acquire")
			out.Replaced = store.Token(d.replaced)
			return out
		},
	}, claims)
}

// Release implements store.Store, in one request. What a transaction guards is not released:
// Outcome.Err is ErrGuarded, at once if it is one of several, else after up to 250 ms.
func (s *Store) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	name := func(h store.Held) string { return h.Name }
	outs, err := ask(ctx, s, verb[store.Held]{
		name: "release", of: name, check: func(h store.Held) error { return store.ValidateName(h.Name) },
		parameters: "$1::text[], $2::bigint[], $3::bigint[]",
		args: func(now []store.Held) []any {
			return []any{
				db.Array(now, name), db.Array(now, func(h store.Held) int64 { return int64(h.Token) }),
				db.Array(now, func(h store.Held) int64 { return int64(h.Nonce) }),
			}
		},
		outcome: func(_ store.Held, d *decided) store.Outcome {
			switch d.answer {
			case "done":
				return store.Outcome{OK: true}
			case "guarded":
				return d.failed("release", ErrGuarded)
			}
			return d.outcome("release")
		},
	}, held)
	for i := range outs {
		if !errors.Is(outs[i].Err, ErrGuarded) {
			outs[i].Err = nil // whatever holds the name, if it is one, is not that ownership
		}
	}
	return outs, err
}

// Transfer implements store.Transferrer, in one request. What a transaction guards is not moved:
// Outcome.Err is ErrGuarded, at once if it is one of several, else after up to 250 ms.
func (s *Store) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	name := func(m store.Transfer) string { return m.Name }
	return ask(ctx, s, verb[store.Transfer]{
		name: "transfer", of: name, check: limits.ValidateTransfer,
		parameters: "$1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::text[], $8::bigint",
		args: func(now []store.Transfer) []any {
			return []any{
				db.Array(now, name), db.Array(now, func(m store.Transfer) int64 { return int64(m.Token) }),
				db.Array(now, func(m store.Transfer) int64 { return int64(m.Nonce) }),
				db.Array(now, func(m store.Transfer) int64 { return int64(m.To.Session) }),
				db.Array(now, func(m store.Transfer) string { return db.Escape(m.To.Owner.Incarnation) }),
				db.Array(now, func(m store.Transfer) int64 { return int64(m.To.Nonce) }),
				db.Array(now, func(m store.Transfer) *string {
					if m.Metadata != nil && len(m.Metadata) == 0 {
						return new("{}") // NULL keeps the metadata
					}
					return pack(m.Metadata)
				}), s.seen.Highest(),
			}
		},
		outcome: func(m store.Transfer, d *decided) store.Outcome {
			switch d.answer {
			case "gone":
				return d.failed("transfer", store.Session{ID: m.To.Session, Owner: m.To.Owner}.Gone())
			case "guarded":
				return d.failed("transfer", ErrGuarded)
			}
			return d.outcome("transfer")
		},
	}, moves)
}
