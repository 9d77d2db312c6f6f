package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// OpenSession implements store.Store. A TTL is rounded up to milliseconds. An error that is
// store.ErrInvalid means that nothing was opened: store.Limits.ValidateSession refuses it, or the
// ID is a session of another incarnation.
func (s *Store) OpenSession(ctx context.Context, want store.Session) (store.Grant, error) {
	const op = "open session"
	if err := s.limits.ValidateSession(want); err != nil {
		return store.Grant{}, failed(op, err)
	}
	r, err := s.call(ctx, op, openScript,
		int64(want.ID), milliseconds(want.TTL), incarnation(want.Owner), ownerText(want))
	switch {
	case err != nil:
		return store.Grant{}, err
	case r.said == "gone":
		return store.Grant{}, failed(op, want.Gone())
	case r.said == "other":
		return store.Grant{}, failed(op, fmt.Errorf("session %d of %s: %w: it is of another incarnation",
			want.ID, want.Owner.ID, store.ErrInvalid))
	}
	return store.Grant{TTL: time.Duration(number(r.said)) * time.Millisecond}, nil
}

// CloseSession implements store.Store, with one request for each 200 records. With the first the
// session is over, and no record of it is seen any more.
func (s *Store) CloseSession(ctx context.Context, want store.Session) error {
	for begun := false; ; begun = true {
		r, err := s.call(ctx, "close session", closeScript, int64(want.ID), incarnation(want.Owner), begun)
		if err != nil && begun {
			return fmt.Errorf("redis: close session, after it was begun: %v", err) // it is not definite
		}
		if err != nil || r.said == "over" {
			return err
		}
	}
}

// Renew implements store.Store: one request for all sessions, which end a TTL from one moment.
func (s *Store) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	const op = "renew"
	var args []any
	for _, want := range sessions {
		args = append(args, int64(want.ID), incarnation(want.Owner))
	}
	grants := make([]store.Grant, len(sessions))
	for i := range grants {
		grants[i].Err = failed(op, sessions[i].Gone())
	}
	r, err := s.call(ctx, op, renewScript, args...)
	if err != nil {
		return nil, err
	}
	for i, ttl := range r.list {
		if ms := number(ttl); ms > 0 {
			grants[i] = store.Grant{TTL: time.Duration(ms) * time.Millisecond}
		}
	}
	return grants, nil
}
