package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/store"
)

// OpenSession implements store.Store. A TTL is rounded up to milliseconds. Errors besides: those of
// Check.
func (s *Store) OpenSession(ctx context.Context, want store.Session) (store.Grant, error) {
	if err := s.made(ctx); err != nil {
		return store.Grant{}, err
	}
	if err := limits.ValidateSession(want); err != nil {
		return store.Grant{}, fmt.Errorf("postgres: open session: %w", err)
	}
	var ttl int64
	err := s.call(ctx, "open session",
		"SELECT "+s.function("open")+"($1::bigint, $2::text, $3::text, $4::text, $5::bigint)",
		[]any{int64(want.ID), db.Escape(want.Owner.ID), db.Escape(want.Owner.Incarnation), db.Escape(want.Owner.Address),
			int64((want.TTL-1)/time.Millisecond) + 1},
		func(scan db.Scan) error { return scan(&ttl) })
	switch {
	case err != nil:
		return store.Grant{}, err
	case ttl == 0:
		return store.Grant{}, fmt.Errorf("postgres: open session: %w", want.Gone())
	case ttl < 0:
		return store.Grant{}, fmt.Errorf("postgres: open session %d of %s: %w: the session is of another incarnation",
			want.ID, want.Owner.ID, store.ErrInvalid)
	}
	return store.Grant{TTL: time.Duration(ttl) * time.Millisecond}, nil
}

// closing is how many records one request of CloseSession removes.
const closing = 5000

// CloseSession implements store.Store: with one request for each 5000 records. When the first was
// applied the session is over for good, and Stores that watch, or change something, remove what is left.
// The error is ErrGuarded if that is so of a name that a transaction guards.
func (s *Store) CloseSession(ctx context.Context, want store.Session) error {
	var pause backoff
	for applied := false; ; applied = true {
		var freed, standing int64
		err := s.call(ctx, "close session",
			"SELECT freed::bigint, standing::bigint FROM "+s.function("close")+"($1::bigint, $2::text, $3::int)",
			[]any{int64(want.ID), db.Escape(want.Owner.Incarnation), int64(closing)},
			func(scan db.Scan) error { return scan(&freed, &standing) })
		if freed > 0 {
			s.changed()
		}
		if err != nil && applied {
			err = indefinite(err)
		}
		switch {
		case err != nil || standing == 0:
			return err
		case freed > 0:
		case pause.waited > guardWait:
			return fmt.Errorf("postgres: close session %d of %s: %w: %d records stand until it ends",
				want.ID, want.Owner.ID, ErrGuarded, standing)
		default:
			if err := pause.wait(ctx); err != nil {
				return s.explain(ctx, "close session", err)
			}
		}
	}
}

// Renew implements store.Store: one request for all sessions of an incarnation, which waits for no
// transaction of a user.
func (s *Store) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	if err := s.made(ctx); err != nil {
		return nil, err
	}
	all := map[string][]int{}
	for i, of := range sessions {
		all[of.Owner.Incarnation] = append(all[of.Owner.Incarnation], i)
	}
	grants := make([]store.Grant, len(sessions))
	applied := false
	for incarnation, now := range all {
		ttls := make(map[int64]int64, len(now))
		err := s.call(ctx, "renew", "SELECT id, ttl FROM "+s.function("renew")+"($1::bigint[], $2::text[])",
			[]any{db.Array(now, func(i int) int64 { return int64(sessions[i].ID) }),
				slices.Repeat([]string{db.Escape(incarnation)}, len(now))},
			func(scan db.Scan) error {
				var id, ttl int64
				err := scan(&id, &ttl)
				ttls[id] = ttl
				return err
			})
		if err != nil && applied {
			err = indefinite(err)
		}
		if err != nil {
			return nil, err
		}
		applied = true
		for _, i := range now {
			if ttl := ttls[int64(sessions[i].ID)]; ttl != 0 {
				grants[i].TTL = time.Duration(ttl) * time.Millisecond
			} else {
				grants[i].Err = fmt.Errorf("postgres: renew: %w", sessions[i].Gone())
			}
		}
	}
	return grants, nil
}

// backoff are pauses that grow, between looks at what is locked.
type backoff struct {
	next, waited time.Duration
}

const (
	firstPause = time.Millisecond
	lastPause  = 25 * time.Millisecond
	// guardWait is for how long a request about names that are guarded, and about no others,
	// waits for the transaction to end.
	guardWait = 250 * time.Millisecond
)

// wait waits for the next pause, or for the end of ctx, which it returns.
func (b *backoff) wait(ctx context.Context) error {
	b.next = min(max(2*b.next, firstPause), lastPause)
	b.waited += b.next
	return boundary.Pause(ctx, b.next)
}
