package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// session is an open one.
type session struct {
	store.Session
	ends time.Duration
}

// session returns the session that stands under an ID, open or over.
func (t *tx) session(id store.SessionID) (o session, stands bool, err error) {
	o.ID = id
	err = t.get("SELECT owner, incarnation, address, ttl, ends FROM holdfast_session WHERE id = ?", []any{int64(id)},
		&o.Owner.ID, &o.Owner.Incarnation, &o.Owner.Address, &o.TTL, &o.ends)
	if errors.Is(err, sql.ErrNoRows) {
		return o, false, nil
	}
	return o, err == nil, err
}

// live returns the open session that want means.
func (t *tx) live(want store.Session) (o session, ok bool, err error) {
	o, stands, err := t.session(want.ID)
	return o, stands && o.ends > t.now && o.Owner.Incarnation == want.Owner.Incarnation, err
}

// extended is when a session ends whose TTL begins now.
func (t *tx) extended(ttl time.Duration) int64 {
	t.trust = max(t.trust, t.now+ttl)
	return int64(t.now + ttl)
}

// renew has a session end a TTL from now.
func (t *tx) renew(o session) error {
	return t.exec("UPDATE holdfast_session SET ends = ? WHERE id = ?", t.extended(o.TTL), int64(o.ID))
}

// OpenSession opens or renews a session. One that is renewed keeps its granted TTL. An error
// that is store.ErrInvalid means that nothing was opened: the session is refused by
// store.Limits.ValidateSession, longer than a year, or has the ID of one of another incarnation.
func (s *Store) OpenSession(ctx context.Context, want store.Session) (store.Grant, error) {
	const op = "open session"
	if err := limits.ValidateSession(want); err != nil {
		return store.Grant{}, failed(op, err)
	}
	var grant store.Grant
	err := s.write(ctx, op, false, func(t *tx) error {
		o, stands, err := t.session(want.ID)
		if err != nil {
			return err
		}
		if stands && o.ends > t.now {
			if o.Owner.Incarnation != want.Owner.Incarnation {
				return fmt.Errorf("session %d: %w: it is of %s, incarnation %s",
					want.ID, store.ErrInvalid, o.Owner.ID, o.Owner.Incarnation)
			}
			grant.TTL = o.TTL
			return t.renew(o)
		}
		// What is left of one that is over, or was taken away by hand, is not the new one's.
		if _, err := t.end(int64(want.ID), math.MaxInt64); err != nil {
			return err
		}
		grant.TTL = want.TTL
		return t.exec("INSERT INTO holdfast_session VALUES (?, ?, ?, ?, ?, ?)", int64(want.ID), want.Owner.ID,
			want.Owner.Incarnation, want.Owner.Address, int64(want.TTL), t.extended(want.TTL))
	})
	return grant, err
}

// CloseSession ends the session, at one moment, and removes its records, 500 in a transaction.
func (s *Store) CloseSession(ctx context.Context, want store.Session) error {
	const op = "close session"
	for begun := false; ; begun = true {
		over := true
		err := s.write(ctx, op, false, func(t *tx) error {
			o, stands, err := t.session(want.ID)
			if err != nil || !stands || o.Owner.Incarnation != want.Owner.Incarnation || begun && o.ends > t.now {
				return err
			}
			err = t.exec("UPDATE holdfast_session SET ends = min(ends, ?) WHERE id = ?", int64(t.now), int64(want.ID))
			if err != nil {
				return err
			}
			n, err := t.end(int64(want.ID), int64(limits.Batch))
			over = n < int64(limits.Batch)
			return err
		})
		if err != nil || over {
			return err
		}
	}
}

// Renew has each session end a TTL from now, which is one moment for all. It does not wait for
// the disk: what a power cut takes away had ended with the boot.
func (s *Store) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	grants := make([]store.Grant, len(sessions))
	err := s.write(ctx, "renew", false, func(t *tx) error {
		for i, want := range sessions {
			o, ok, err := t.live(want)
			if err != nil {
				return err
			}
			if !ok {
				grants[i].Err = failed("renew", want.Gone())
				continue
			}
			if err := t.renew(o); err != nil {
				return err
			}
			grants[i].TTL = o.TTL
		}
		return nil
	})
	return grants, err
}
