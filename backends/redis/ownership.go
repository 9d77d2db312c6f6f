package redis

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/store"
)

// batch is what one call asks of several names: of those that pass, arguments for the script.
type batch struct {
	outs    []store.Outcome
	args    []any
	pending []int // those that are asked for
}

// newBatch is an error if a call has too many names.
func newBatch(op string, n int, args ...any) (*batch, error) {
	if n > maxBatch {
		return nil, failed(op, fmt.Errorf("%w: %d names, must be at most %d (Limits.Batch)", store.ErrInvalid, n, maxBatch))
	}
	return &batch{outs: make([]store.Outcome, n), args: args}, nil
}

// add asks for the i-th, unless that is invalid.
func (b *batch) add(op string, i int, invalid error, args ...any) {
	if invalid != nil {
		b.outs[i].Err = failed(op, invalid)
		return
	}
	b.args, b.pending = append(b.args, args...), append(b.pending, i)
}

// decide runs a script about what is pending, in order. refused says what else an answer means.
func (s *Store) decide(ctx context.Context, op string, of *script, b *batch,
	refused func(i int, said string) error) ([]store.Outcome, error) {
	r, err := s.call(ctx, op, of, -1, b.args...)
	switch {
	case err != nil:
		return nil, err
	case r.said == "gone":
		return nil, failed(op, store.ErrSessionGone)
	case len(r.list) != len(b.pending):
		return nil, failed(op, fmt.Errorf("%w: %d answers for %d names", store.ErrInconsistent, len(r.list), len(b.pending)))
	}
	for k, i := range b.pending {
		parts, out := append(list(r.list[k]), "", "", ""), &b.outs[i]
		if stands := list(parts[1]); len(stands) > 0 {
			out.Record, out.Err = rowOf(stands).record()
		}
		said := text(parts[0])
		if err := refused(i, said); err != nil {
			out.Err = failed(op, err)
		}
		out.OK, out.Replaced = said == "done" && out.Err == nil, store.Token(number(parts[2]))
	}
	return b.outs, nil
}

// Acquire implements store.Store: one request, in which the claims are decided in order.
func (s *Store) Acquire(ctx context.Context, want store.Session, claims []store.Claim) ([]store.Outcome, error) {
	const op = "acquire"
	b, err := newBatch(op, len(claims), int64(want.ID), incarnation(want.Owner))
	if err != nil {
		return nil, err
	}
	whiles := make([]string, len(claims))
	for i, c := range claims {
		whiles[i] = c.While.Name
		b.add(op, i, s.limits.ValidateClaim(c), c.Name, nonceText(c.Nonce), uint64(c.Supersedes), pack(c.Metadata),
			c.While.Name, uint64(c.While.Token), nonceText(c.While.Nonce))
	}
	return s.decide(ctx, op, acquireScript, b, func(i int, said string) error {
		if said == "parent" {
			return fmt.Errorf("%w: %q", store.ErrParentLost, whiles[i])
		}
		return nil
	})
}

// Release implements store.Store, in one request.
func (s *Store) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	const op = "release"
	b, err := newBatch(op, len(held))
	if err != nil {
		return nil, err
	}
	for i, h := range held {
		b.add(op, i, nil, h.Name, uint64(h.Token), nonceText(h.Nonce))
	}
	r, err := s.call(ctx, op, releaseScript, len(held), b.args...)
	if err != nil {
		return nil, err
	}
	for i, done := range r.list {
		b.outs[i].OK = number(done) == 1
	}
	return b.outs, nil
}

// Transfer implements store.Transferrer: one request, in which the moves are decided in order.
func (s *Store) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	const op = "transfer"
	b, err := newBatch(op, len(moves))
	if err != nil {
		return nil, err
	}
	targets := make([]store.Session, len(moves))
	for i, m := range moves {
		targets[i] = store.Session{ID: m.To.Session, Owner: m.To.Owner}
		keep := 0
		if m.Metadata == nil {
			keep = 1
		}
		b.add(op, i, s.limits.ValidateTransfer(m), m.Name, uint64(m.Token), nonceText(m.Nonce),
			int64(m.To.Session), incarnation(m.To.Owner), nonceText(m.To.Nonce), keep, pack(m.Metadata))
	}
	return s.decide(ctx, op, transferScript, b, func(i int, said string) error {
		if said == "gone" {
			return gone(targets[i])
		}
		return nil
	})
}
