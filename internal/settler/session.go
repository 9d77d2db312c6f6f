package settler

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// Opening, renewing and closing may be repeated as they are. But an opening that
// lands after the session was closed reopens it: it is closed again before
// anything is asked of it.

func (s *Store) OpenSession(ctx context.Context, want store.Session) (g store.Grant, err error) {
	if ctx.Err() != nil {
		return s.inner.OpenSession(ctx, want)
	}
	err = s.repeat(ctx, func(ctx context.Context) error {
		sent := time.Now()
		g, err = s.inner.OpenSession(ctx, want)
		s.ledger.opened(want, sent, g.TTL, answers(err))
		return err
	})
	return g, err
}

func (s *Store) CloseSession(ctx context.Context, want store.Session) error {
	if ctx.Err() != nil {
		return s.inner.CloseSession(ctx, want)
	}
	s.ledger.closing(want.ID, false)
	err := s.repeat(ctx, func(ctx context.Context) error { return s.inner.CloseSession(ctx, want) })
	if err == nil {
		s.ledger.closing(want.ID, true)
	}
	return err
}

// bury closes sessions that may have been opened again by a request that landed
// after they were closed.
func (s *Store) bury(ctx context.Context, ids ...store.SessionID) error {
	for _, id := range ids {
		if sess, yes := s.ledger.haunted(id); yes {
			if err := s.inner.CloseSession(ctx, sess); err != nil {
				return err
			}
		}
	}
	return nil
}

// toGhosts buries what moves were answered to have been moved to: sessions that
// are closed, and may have come back. What was moved goes with them. If the session was
// closed before the move began, no answer to a move says that; if it was closed
// meanwhile, it was closed after the move.
func (s *Store) toGhosts(ctx context.Context, moves []store.Transfer, outs []store.Outcome, closed []bool) error {
	for i, out := range outs {
		to := moves[i].To.Session
		if _, yes := s.ledger.haunted(to); !yes || !out.OK {
			continue
		}
		if err := s.repeat(ctx, func(ctx context.Context) error { return s.bury(ctx, to) }); err != nil {
			return err
		}
		if closed[i] {
			return fmt.Errorf("%+v was moved to a session that was closed: %w", moves[i].Held, ErrUnsettled)
		}
	}
	return nil
}

func (s *Store) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	grants := make([]store.Grant, len(sessions))
	left := upTo(len(sessions))
	err := s.repeat(ctx, func(ctx context.Context) error {
		sent := time.Now()
		part := pick(sessions, left)
		ids := make([]store.SessionID, len(part))
		for i, p := range part {
			ids[i] = p.ID
		}
		if err := s.bury(ctx, ids...); err != nil {
			return err
		}
		got, err := s.inner.Renew(ctx, part)
		if err != nil {
			return err
		}
		if len(got) != len(part) {
			grants = got
			return nil
		}
		var failed error
		var again []int
		for j, i := range left {
			switch grants[i] = got[j]; {
			case !answers(got[j].Err):
				failed = got[j].Err
				again = append(again, i)
			case got[j].Err != nil:
			default:
				s.ledger.opened(part[j], sent, got[j].TTL, true)
				if _, yes := s.ledger.haunted(ids[j]); yes { // since it was looked for
					failed = cmp.Or(failed, errMore)
					again = append(again, i)
				}
			}
		}
		left = again
		return failed
	})
	if err != nil {
		return nil, err
	}
	return grants, nil
}
