package redis

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/store"
)

// batch is what one call asks of several names: of those that pass, arguments for the script.
type batch struct {
	op      string
	outs    []store.Outcome
	args    []any
	pending []int    // those that are asked for
	names   []string // of these
}

func newBatch(op string, n int, args ...any) *batch {
	return &batch{op: op, outs: make([]store.Outcome, n), args: args}
}

// add asks for the i-th, unless that is invalid.
func (b *batch) add(i int, invalid error, name string, args ...any) {
	if invalid != nil {
		b.outs[i].Err = failed(b.op, invalid)
		return
	}
	b.names, b.pending = append(b.names, name), append(b.pending, i)
	b.args = append(append(b.args, name), args...)
}

// reasons are why a script refuses a name that says nothing of its holder.
var reasons = map[string]error{"parent": store.ErrParentLost, "target": store.ErrSessionGone}

// decide runs a script about what is pending, in order.
func (s *Store) decide(ctx context.Context, of *script, b *batch) ([]store.Outcome, error) {
	r, err := s.call(ctx, b.op, of, b.args...)
	switch {
	case err != nil:
		return nil, err
	case r.said == "gone":
		return nil, failed(b.op, store.ErrSessionGone)
	}
	for k, i := range b.pending {
		parts, out := append(list(r.list[k]), "", "", ""), &b.outs[i]
		if stands := list(parts[1]); len(stands) > 0 {
			out.Record, out.Err = rowOf(stands).record()
		}
		said := text(parts[0])
		if reason := reasons[said]; reason != nil {
			out.Err = failed(b.op, fmt.Errorf("lease %q: %w", b.names[k], reason))
		}
		out.OK, out.Replaced = said == "done" && out.Err == nil, store.Token(number(parts[2]))
	}
	return b.outs, nil
}

// Acquire implements store.Store: one request, in which the claims are decided in order.
func (s *Store) Acquire(ctx context.Context, want store.Session, claims []store.Claim) ([]store.Outcome, error) {
	b := newBatch("acquire", len(claims), int64(want.ID), incarnation(want.Owner))
	for i, c := range claims {
		b.add(i, s.limits.ValidateClaim(c), c.Name, nonceText(c.Nonce), uint64(c.Supersedes), pack(c.Metadata),
			c.While.Name, uint64(c.While.Token), nonceText(c.While.Nonce))
	}
	return s.decide(ctx, acquireScript, b)
}

// Release implements store.Store, in one request.
func (s *Store) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	b := newBatch("release", len(held))
	for i, h := range held {
		b.add(i, nil, h.Name, uint64(h.Token), nonceText(h.Nonce))
	}
	r, err := s.call(ctx, b.op, releaseScript, b.args...)
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
	b := newBatch("transfer", len(moves))
	for i, m := range moves {
		keep := 0
		if m.Metadata == nil {
			keep = 1
		}
		b.add(i, s.limits.ValidateTransfer(m), m.Name, uint64(m.Token), nonceText(m.Nonce),
			int64(m.To.Session), incarnation(m.To.Owner), nonceText(m.To.Nonce), keep, pack(m.Metadata))
	}
	return s.decide(ctx, transferScript, b)
}
