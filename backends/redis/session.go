package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

func gone(want store.Session) error {
	return fmt.Errorf("session %d of %s: %w", want.ID, want.Owner.ID, store.ErrSessionGone)
}

// OpenSession implements store.Store. A TTL is rounded up to milliseconds. An error that is
// store.ErrInvalid means that nothing was opened: store.Limits.ValidateSession refuses it, or the ID is
// a session of another incarnation.
func (s *Store) OpenSession(ctx context.Context, want store.Session) (store.Grant, error) {
	const op = "open session"
	if err := s.limits.ValidateSession(want); err != nil {
		return store.Grant{}, failed(op, err)
	}
	reply, err := s.call(ctx, op, openScript, int64(want.ID), milliseconds(want.TTL), incarnation(want.Owner), ownerText(want))
	if err != nil {
		return store.Grant{}, err
	}
	switch reply[0] {
	case "gone":
		return store.Grant{}, failed(op, gone(want))
	case "other":
		return store.Grant{}, failed(op, fmt.Errorf("session %d of %s: %w: it is of another incarnation",
			want.ID, want.Owner.ID, store.ErrInvalid))
	}
	ttl, err := number(reply[0])
	if err != nil {
		return store.Grant{}, failed(op, err)
	}
	return store.Grant{TTL: time.Duration(ttl) * time.Millisecond}, nil
}

// CloseSession implements store.Store, with one request for each 200 records. With the first the
// session is over, and no record of it is seen any more.
func (s *Store) CloseSession(ctx context.Context, want store.Session) error {
	for begun := false; ; begun = true {
		reply, err := s.call(ctx, "close session", closeScript, int64(want.ID), incarnation(want.Owner))
		if err != nil && begun {
			err = indefinite(err)
		}
		if err != nil || reply[0] == int64(1) {
			return err
		}
	}
}

// indefinite is err of a call of which a part was applied before: nothing is known of the rest.
func indefinite(err error) error { return fmt.Errorf("redis: after a part was applied: %v", err) }

// Renew implements store.Store: one request for all sessions, which end a TTL from one moment.
func (s *Store) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	var args []any
	for _, want := range sessions {
		args = append(args, int64(want.ID), incarnation(want.Owner))
	}
	grants := make([]store.Grant, len(sessions))
	reply, err := s.call(ctx, "renew", renewScript, args...)
	if err != nil {
		return nil, err
	}
	ttls, _ := reply[len(reply)-1].([]any)
	if len(ttls) != len(sessions) {
		return nil, failed("renew", fmt.Errorf("%w: %d answers for %d sessions", store.ErrInconsistent, len(ttls), len(sessions)))
	}
	for i, ttl := range ttls {
		if ms, _ := ttl.(int64); ms > 0 {
			grants[i].TTL = time.Duration(ms) * time.Millisecond
		} else {
			grants[i].Err = failed("renew", gone(sessions[i]))
		}
	}
	return grants, nil
}

func decimal[T ~int64 | ~uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }
