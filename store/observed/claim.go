package observed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// swap makes of each name the record that decide plans, without its token, by compare-and-swap on the
// version that was read, and tells done what was written. Where decide plans nil the name is decided,
// and nothing is written. A name that was changed meanwhile is read and planned again. decide and done get what concerns one name in order; the
// calls for several are one after the other. It returns outs, which they fill in, or why it failed.
func (s *Store) swap(
	ctx context.Context, op string, names []string, sessions []store.SessionID, outs []store.Outcome,
	decide func(i int, n standing, at map[store.SessionID]looked) *record,
	gone func(at map[store.SessionID]looked) error, // nil for operations without a session of their own
	done func(i int, n standing, r store.Record),
) ([]store.Outcome, error) {
	wrote := false
	todo := make([]int, len(names))
	for i := range names {
		todo[i] = i
	}
	for {
		asked := make([]string, len(todo))
		for k, i := range todo {
			asked[k] = names[i]
		}
		found, at, err := s.read(ctx, op, asked, sessions...)
		if err == nil && gone != nil {
			err = gone(at)
		}
		if err != nil {
			if wrote && (errors.Is(err, store.ErrSessionGone) || errors.Is(err, store.ErrDenied)) {
				err = fmt.Errorf("%w, after a part was done: %v", lease.ErrUnknown, err)
			}
			return nil, err
		}
		plans := make([]*record, len(todo))
		tokens := make([]store.Token, len(todo))
		for k, i := range todo {
			plans[k] = decide(i, found[k], at)
		}
		if err := each(len(todo), func(k int) (err error) {
			if plans[k] != nil {
				tokens[k], err = s.write(ctx, op, found[k], *plans[k])
			}
			return err
		}); err != nil {
			return nil, whole(err, wrote || slices.ContainsFunc(tokens, func(t store.Token) bool { return t != 0 }))
		}
		var again []int
		for k, i := range todo {
			switch next := plans[k]; {
			case next == nil:
			case tokens[k] == 0:
				again = append(again, i)
			case next.Session == 0:
				wrote = true
				done(i, found[k], store.Record{})
			default:
				wrote = true
				g := at[next.Session].sight
				done(i, found[k], g.record(*next, tokens[k], g.left(s.clock.Now().Mono)))
			}
		}
		if todo = again; len(todo) == 0 {
			return outs, nil
		}
		if err := s.done(ctx, op); err != nil {
			return nil, err
		}
	}
}

// whole is the error of several writes: store.ErrDenied, which is definite for all of them, only
// if all that failed were denied, and none was done.
func whole(err error, done bool) error {
	failed := []error{err}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		failed = several.Unwrap()
	}
	doubt := func(err error) bool { return !errors.Is(err, store.ErrDenied) }
	if errors.Is(err, store.ErrDenied) && (done || slices.ContainsFunc(failed, doubt)) {
		return fmt.Errorf("%w, after a part was done, or may be: %v", lease.ErrUnknown, err)
	}
	return err
}

// write puts r in the place of n, a tombstone if it has no session, and returns its
// token; 0 if n does not stand any more.
func (s *Store) write(ctx context.Context, op string, n standing, r record) (store.Token, error) {
	key := recordKey(r.Name)
	if r.Session == 0 && s.number != nil {
		ok, err := s.objects.Delete(ctx, key, n.version)
		if err != nil {
			return 0, s.unknown(op, key, err)
		}
		if !ok {
			return 0, nil
		}
		return n.token, nil
	}
	if r.Token = n.token; s.number != nil {
		r.Token = 0
	} else if r.Session != 0 {
		r.Token++
	}
	version, ok, err := s.put(ctx, op, key, encode(r), n.version)
	if err != nil || !ok {
		return 0, err
	}
	token, err := s.token(r, version)
	if err != nil {
		return 0, s.unknown(op, key, err)
	}
	return token, nil
}

// refuse tells whether r is too long to be written.
func (s *Store) refuse(op string, r record) error {
	r.Token, r.Granted = 1<<63-1, 1<<63-1 // no count is longer, and no time
	return s.fits(op, recordKey(r.Name), encode(r))
}

// Acquire decides each claim by a swap of its record. A claim that
// store.Limits.ValidateClaim refuses, or whose record would be too long, is answered with
// store.ErrInvalid as the Outcome's error. The error that is store.ErrSessionGone means
// that the session is not open.
func (s *Store) Acquire(ctx context.Context, want store.Session, claims []store.Claim) ([]store.Outcome, error) {
	const op = "acquire"
	if err := s.check(ctx, op); err != nil {
		return nil, err
	}
	outs := make([]store.Outcome, len(claims))
	var names []string
	var of []int // which claim asks for each of names
	for i, c := range claims {
		err := s.limits.ValidateClaim(c)
		if err == nil {
			err = s.refuse(op, claimed(c, want, 1<<64-1))
		}
		if err != nil {
			outs[i].Err = fmt.Errorf("%s: %s: %w", s.limits.Name, op, err)
			continue
		}
		names, of = append(names, c.Name), append(of, i)
	}
	return s.swap(ctx, op, names, []store.SessionID{want.ID}, outs,
		func(i int, n standing, at map[store.SessionID]looked) *record {
			c, out := claims[of[i]], &outs[of[i]]
			supersedes := n.held && c.Supersedes == n.token && n.of.is(want)
			if n.err != nil || n.held && !supersedes {
				*out = store.Outcome{Err: n.err}
				if n.err == nil {
					out.Record = n.public()
				}
				return nil
			}
			next := claimed(c, want, at[want.ID].Life)
			next.Granted = grantedAt(s.clock.Now())
			return &next
		},
		func(at map[store.SessionID]looked) error {
			own := at[want.ID]
			if own.err != nil {
				return s.unknown(op, sessionKey(want.ID), own.err)
			}
			if !own.there || !own.is(want) {
				return s.gone(op, want)
			}
			return nil
		},
		func(i int, n standing, r store.Record) {
			outs[of[i]] = store.Outcome{OK: true, Record: r}
			if n.held {
				outs[of[i]].Replaced = n.token
			}
		})
}

// claimed is the record that c makes.
func claimed(c store.Claim, of store.Session, life uint64) record {
	return record{
		Format: format, Name: c.Name, Session: of.ID, Life: life, Nonce: c.Nonce, Metadata: maps.Clone(c.Metadata),
		Holder: of.Owner.ID,
	}
}

// Release leaves a tombstone in the place of each record that still is that ownership,
// or nothing where versions are Numbered.
func (s *Store) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	const op = "release"
	if err := s.check(ctx, op); err != nil {
		return nil, err
	}
	outs, names := make([]store.Outcome, len(held)), make([]string, len(held))
	for i, h := range held {
		names[i] = h.Name
	}
	return s.swap(ctx, op, names, nil, outs,
		func(i int, n standing, _ map[store.SessionID]looked) *record {
			if !n.is(held[i]) {
				outs[i] = store.Outcome{Record: n.public()}
				return nil
			}
			return &record{Format: format, Name: n.Name}
		},
		nil,
		func(i int, _ standing, _ store.Record) { outs[i] = store.Outcome{OK: true} })
}

// Transfer moves each ownership by one swap of its record, after it looked at the
// target's session. A move that store.Limits.ValidateTransfer refuses, or whose record would be
// too long, is answered with store.ErrInvalid, one to a session that is not open, or
// not the offer's owner's, with store.ErrSessionGone, as the Outcome's error.
func (s *Store) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	const op = "transfer"
	if err := s.check(ctx, op); err != nil {
		return nil, err
	}
	outs, names := make([]store.Outcome, len(moves)), make([]string, len(moves))
	var targets []store.SessionID
	for i, m := range moves {
		names[i] = m.Name
		targets = append(targets, m.To.Session)
	}
	return s.swap(ctx, op, names, targets, outs,
		func(i int, n standing, at map[store.SessionID]looked) *record {
			m := moves[i]
			outs[i] = store.Outcome{Record: n.public()}
			if !n.is(m.Held) {
				return nil
			}
			to := store.Session{ID: m.To.Session, Owner: m.To.Owner}
			target := at[to.ID]
			next := record{
				Format: format, Name: m.Name, Session: to.ID, Life: target.Life, Nonce: m.To.Nonce,
				Metadata: maps.Clone(m.Metadata), Granted: grantedAt(s.clock.Now()), Holder: m.To.Owner.ID,
			}
			if m.Metadata == nil {
				next.Metadata = n.Metadata
			}
			err := s.limits.ValidateTransfer(m)
			switch {
			case err != nil:
			case target.err != nil:
				err = target.err
			case !target.there || !target.is(to):
				err = s.gone(fmt.Sprintf("%s %q", op, m.Name), to)
			default:
				err = s.refuse(op, next)
			}
			if err != nil {
				outs[i].Err = fmt.Errorf("%s: %s: %w", s.limits.Name, op, err)
				return nil
			}
			return &next
		},
		nil,
		func(i int, _ standing, r store.Record) { outs[i] = store.Outcome{OK: true, Record: r} })
}
