package observed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// swap makes of each name, whose outcome is no error yet, the record that decide plans, without its token,
// by compare-and-swap on the version that was read. Where decide plans nil the name is decided, and
// nothing is written. A name that was changed meanwhile is read and planned again. An error of decide
// ends the call. It returns outs, or why it failed.
func (s *Store) swap(
	ctx context.Context, op string, names []string, sessions []store.SessionID, outs []store.Outcome,
	decide func(i int, n standing, at map[store.SessionID]looked) (*record, error),
) ([]store.Outcome, error) {
	wrote := false
	var todo []int
	for i, out := range outs {
		if out.Err == nil {
			todo = append(todo, i)
		}
	}
	for len(todo) > 0 {
		asked := make([]string, len(todo))
		for k, i := range todo {
			asked[k] = names[i]
		}
		found, at, err := s.read(ctx, op, asked, sessions...)
		plans, tokens := make([]*record, len(todo)), make([]store.Token, len(todo))
		for k := 0; k < len(todo) && err == nil; k++ {
			plans[k], err = decide(todo[k], found[k], at)
		}
		if err == nil {
			err = each(len(todo), func(k int) (err error) {
				if plans[k] != nil {
					tokens[k], err = s.write(ctx, op, found[k], *plans[k])
				}
				return err
			})
		}
		var again []int
		for k, i := range todo {
			switch next := plans[k]; {
			case next == nil:
			case tokens[k] == 0:
				again = append(again, i)
			default:
				wrote = true
				outs[i].OK, outs[i].Record = true, store.Record{}
				if g := at[next.Session].sight; next.Session != 0 {
					outs[i].Record = g.record(*next, tokens[k], g.left(s.clock.Now().Mono))
				}
			}
		}
		if err != nil {
			return nil, whole(err, wrote)
		}
		todo = again
	}
	return outs, nil
}

// whole is the error of several requests. One that is definite for all of the call is that only if all
// that failed were, and nothing was written.
func whole(err error, wrote bool) error {
	definite := func(err error) bool { return errors.Is(err, store.ErrDenied) || errors.Is(err, store.ErrSessionGone) }
	failed := []error{err}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		failed = several.Unwrap()
	}
	doubt := func(err error) bool { return !definite(err) }
	if definite(err) && (wrote || slices.ContainsFunc(failed, doubt)) {
		return fmt.Errorf("%w, after a part was done, or may be: %v", lease.ErrUnknown, err)
	}
	return err
}

// write puts r in the place of n, a tombstone if it has no session, and returns its
// token; 0 if n does not stand any more.
func (s *Store) write(ctx context.Context, op string, n standing, r record) (store.Token, error) {
	key := Key(r.Name)
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

// under is the record that gives a name to a session, as of now.
func (s *Store) under(of store.Session, life uint64, name string, nonce uint64, metadata map[string]string) *record {
	return &record{
		Format: format, Name: name, Session: of.ID, Life: life, Nonce: nonce, Metadata: maps.Clone(metadata),
		Granted: s.clock.Now().Wall / int64(time.Millisecond), Holder: of.Owner.ID,
	}
}

// Acquire decides each claim by a swap of its record. A claim that store.Limits.ValidateClaim refuses is
// answered with store.ErrInvalid as the Outcome's error. The error that is store.ErrSessionGone means
// that the session is not open.
func (s *Store) Acquire(ctx context.Context, want store.Session, claims []store.Claim) ([]store.Outcome, error) {
	const op = "acquire"
	if err := s.check(ctx, op); err != nil {
		return nil, err
	}
	outs, names := make([]store.Outcome, len(claims)), make([]string, len(claims))
	for i, c := range claims {
		names[i] = c.Name
		outs[i].Err = s.about(op, s.limits.ValidateClaim(c))
	}
	return s.swap(ctx, op, names, []store.SessionID{want.ID}, outs,
		func(i int, n standing, at map[store.SessionID]looked) (*record, error) {
			c, own := claims[i], at[want.ID]
			outs[i] = store.Outcome{}
			switch {
			case own.err != nil:
				return nil, s.unknown(op, sessionKey(want.ID), own.err)
			case !own.there || !own.is(want):
				return nil, s.about(op, want.Gone())
			case n.err != nil:
				outs[i].Err = n.err
				return nil, nil
			case n.held && (c.Supersedes != n.token || !n.of.is(want)):
				outs[i].Record = n.public()
				return nil, nil
			case n.held:
				outs[i].Replaced = n.token
			}
			return s.under(want, own.Life, c.Name, c.Nonce, c.Metadata), nil
		})
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
		func(i int, n standing, _ map[store.SessionID]looked) (*record, error) {
			if !n.is(held[i]) {
				outs[i].Record = n.public()
				return nil, nil
			}
			return &record{Format: format, Name: n.Name}, nil
		})
}

// Transfer moves each ownership by one swap of its record, after it looked at the
// target's session. A move that store.Limits.ValidateTransfer refuses is answered with store.ErrInvalid,
// one to a session that is not open, or not the offer's owner's, with store.ErrSessionGone, as the
// Outcome's error.
func (s *Store) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	const op = "transfer"
	if err := s.check(ctx, op); err != nil {
		return nil, err
	}
	outs, names := make([]store.Outcome, len(moves)), make([]string, len(moves))
	var targets []store.SessionID
	for i, m := range moves {
		names[i], targets = m.Name, append(targets, m.To.Session)
		outs[i].Err = s.about(op, s.limits.ValidateTransfer(m))
	}
	return s.swap(ctx, op, names, targets, outs,
		func(i int, n standing, at map[store.SessionID]looked) (*record, error) {
			m := moves[i]
			outs[i].Record = n.public()
			if !n.is(m.Held) {
				return nil, nil
			}
			to := store.Session{ID: m.To.Session, Owner: m.To.Owner}
			target := at[to.ID]
			switch {
			case target.err != nil:
				outs[i].Err = target.err
				return nil, nil
			case !target.there || !target.is(to):
				outs[i].Err = s.about(fmt.Sprintf("%s %q", op, m.Name), to.Gone())
				return nil, nil
			case m.Metadata == nil:
				m.Metadata = n.Metadata
			}
			return s.under(to, target.Life, m.Name, m.To.Nonce, m.Metadata), nil
		})
}
