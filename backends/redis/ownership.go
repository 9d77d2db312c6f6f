package redis

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/store"
)

// batch is an error if a call has too many names.
func batch(op string, n int) error {
	if n > maxBatch {
		return failed(op, fmt.Errorf("%w: %d names, at most %d (Limits.Batch)", store.ErrInvalid, n, maxBatch))
	}
	return nil
}

// decide runs a script about those of the names that are pending, in order, and puts what was decided
// into outs. refused says what else an answer means.
func (s *Store) decide(ctx context.Context, op string, of *script, args []any, outs []store.Outcome, pending []int,
	refused func(i int, said any) error) error {
	reply, err := s.call(ctx, op, of, args...)
	if err != nil {
		return err
	}
	if reply[0] == int64(-1) {
		return failed(op, store.ErrSessionGone)
	}
	answers, _ := reply[len(reply)-1].([]any)
	if len(answers) != len(pending) {
		return failed(op, fmt.Errorf("%w: %d answers for %d names", store.ErrInconsistent, len(answers), len(pending)))
	}
	for k, i := range pending {
		parts, _ := answers[k].([]any)
		if len(parts) != 3 {
			return failed(op, fmt.Errorf("%w: an answer of %d parts", store.ErrInconsistent, len(parts)))
		}
		out := &outs[i]
		if stands, _ := parts[1].([]any); len(stands) > 0 {
			r, err := rowOf(stands)
			if err != nil {
				return failed(op, err)
			}
			out.Record, out.Err = r.record()
		}
		if err := refused(i, parts[0]); err != nil {
			out.Err = failed(op, err)
		}
		replaced, err := number(parts[2])
		if err != nil {
			return failed(op, err)
		}
		out.OK, out.Replaced = parts[0] == "done" && out.Err == nil, store.Token(replaced)
	}
	return nil
}

// Acquire implements store.Store: one request, in which the claims are decided in order.
func (s *Store) Acquire(ctx context.Context, want store.Session, claims []store.Claim) ([]store.Outcome, error) {
	const op = "acquire"
	if err := batch(op, len(claims)); err != nil {
		return nil, err
	}
	outs, args := make([]store.Outcome, len(claims)), []any{int64(want.ID), incarnation(want.Owner)}
	var pending []int
	for i, c := range claims {
		err := s.limits.ValidateClaim(c)
		meta := ""
		if err == nil {
			meta, err = pack(c.Metadata)
		}
		if err != nil {
			outs[i].Err = failed(op, err)
			continue
		}
		pending = append(pending, i)
		args = append(args, c.Name, nonceText(c.Nonce), decimal(c.Supersedes), meta,
			c.While.Name, decimal(c.While.Token), nonceText(c.While.Nonce))
	}
	err := s.decide(ctx, op, acquireScript, args, outs, pending, func(i int, said any) error {
		if said == "parent" {
			return fmt.Errorf("%q: %w: %q", claims[i].Name, store.ErrParentLost, claims[i].While.Name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return outs, nil
}

// Release implements store.Store, in one request.
func (s *Store) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	const op = "release"
	if err := batch(op, len(held)); err != nil {
		return nil, err
	}
	var args []any
	var asked []int
	for i, h := range held {
		if store.ValidateName(h.Name) == nil { // nothing stands under any other
			args, asked = append(args, h.Name, decimal(h.Token), nonceText(h.Nonce)), append(asked, i)
		}
	}
	reply, err := s.call(ctx, op, releaseScript, args...)
	if err != nil {
		return nil, err
	}
	done, _ := reply[0].([]any)
	if len(done) != len(asked) {
		return nil, failed(op, fmt.Errorf("%w: %d answers for %d names", store.ErrInconsistent, len(done), len(asked)))
	}
	outs := make([]store.Outcome, len(held))
	for k, i := range asked {
		outs[i].OK = done[k] == int64(1)
	}
	return outs, nil
}

// Transfer implements store.Transferrer: one request, in which the moves are decided in order.
func (s *Store) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	const op = "transfer"
	if err := batch(op, len(moves)); err != nil {
		return nil, err
	}
	outs := make([]store.Outcome, len(moves))
	var args []any
	var pending []int
	for i, m := range moves {
		err := s.limits.ValidateTransfer(m)
		meta, keep := "", "1"
		if err == nil && m.Metadata != nil {
			keep = "0"
			meta, err = pack(m.Metadata)
		}
		if err != nil {
			outs[i].Err = failed(op, err)
			continue
		}
		pending = append(pending, i)
		args = append(args, m.Name, decimal(m.Token), nonceText(m.Nonce), decimal(m.To.Session), incarnation(m.To.Owner),
			nonceText(m.To.Nonce), keep, meta)
	}
	err := s.decide(ctx, op, transferScript, args, outs, pending, func(i int, said any) error {
		if to := moves[i].To; said == "gone" {
			return fmt.Errorf("%q: %w", moves[i].Name, gone(store.Session{ID: to.Session, Owner: to.Owner}))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return outs, nil
}
