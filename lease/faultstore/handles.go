package faultstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/lease"
)

// This file makes a store of handles of one that gives none.

// WithHandles gives every session a handle (lease.Grant.Handle), which label begins: Stores
// of one label are clients of one store. Calls on a session without its handle, or with that of
// another label, answer lease.ErrInvalid. The inner store gets no handles.
func WithHandles(label string) Option { return func(s *Store) { s.label, s.gives = label, true } }

func (s *Store) handleOf(id lease.SessionID) string { return fmt.Sprintf("%s/%x", s.label, int64(id)) }

// takeHandle takes the session's handle off, if it is the right one.
func (s *Store) takeHandle(of *lease.Session) error {
	if !s.gives {
		return nil
	}
	if want := s.handleOf(of.ID); of.Handle != want {
		return fmt.Errorf("faultstore: lease.Session.Handle: %w: %.64q, must be %q", lease.ErrInvalid, of.Handle, want)
	}
	of.Handle = ""
	return nil
}

func (s *Store) openHandled(ctx context.Context, want lease.Session) (lease.Grant, error) {
	if want.Handle != "" || !s.gives { // a session that is opened again may have its handle
		if err := s.takeHandle(&want); err != nil {
			return lease.Grant{}, err
		}
	}
	g, err := s.inner.OpenSession(ctx, want)
	if s.gives && err == nil {
		g.Handle = s.handleOf(want.ID)
	}
	return g, err
}

func (s *Store) renewHandled(ctx context.Context, sessions []lease.Session) ([]lease.Grant, error) {
	if !s.gives {
		return s.inner.Renew(ctx, sessions)
	}
	grants := make([]lease.Grant, len(sessions))
	var ours []lease.Session
	var at []int
	for i, x := range sessions {
		if grants[i].Err = s.takeHandle(&x); grants[i].Err == nil {
			ours, at = append(ours, x), append(at, i)
		}
	}
	got, err := s.inner.Renew(ctx, ours)
	if err != nil || len(got) != len(ours) {
		return got, err
	}
	for k, i := range at {
		grants[i] = got[k]
	}
	return grants, nil
}

func (s *Store) transferHandled(ctx context.Context, inner lease.TransferStore, moves []lease.Transfer) ([]lease.Outcome, error) {
	if !s.gives {
		return inner.Transfer(ctx, moves)
	}
	outs := make([]lease.Outcome, len(moves))
	ours := slices.Clone(moves)[:0]
	var at []int
	for i, m := range moves {
		to := lease.Session{ID: m.To.Session, Handle: m.To.Handle}
		if outs[i].Err = s.takeHandle(&to); outs[i].Err == nil {
			m.To.Handle = ""
			ours, at = append(ours, m), append(at, i)
		}
	}
	got, err := inner.Transfer(ctx, ours)
	if err != nil || len(got) != len(ours) {
		return got, err
	}
	for k, i := range at {
		outs[i] = got[k]
	}
	return outs, nil
}
