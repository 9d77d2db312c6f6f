package sqlite

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/store"
)

// give has a name stand for o, under a new token, in the place of what stood there.
func (t *tx) give(o session, name string, nonce uint64, metadata map[string]string) (store.Record, error) {
	wall := t.wall()
	var token int64
	// Microseconds since 1970 put tokens above those that an older copy of the file forgot.
	err := t.get("UPDATE holdfast_meta SET last = max(last + 1, ?) RETURNING last", []any{wall.UnixMicro()}, &token)
	if err != nil {
		return store.Record{}, err
	}
	if err := t.exec("INSERT OR REPLACE INTO holdfast_lease VALUES (?, ?, ?, ?, ?, ?, ?)", name, format, token,
		int64(o.ID), int64(nonce), wall.UnixNano(), pack(metadata)); err != nil {
		return store.Record{}, err
	}
	r, _, err := t.record(name, t.now)
	return r.Record, err
}

// remove takes away what stands under a name.
func (t *tx) remove(name string) error {
	return t.exec("DELETE FROM holdfast_lease WHERE name = ?", name)
}

// Acquire decides the claims in order, all at one moment, and is on the disk when it returns. A claim
// that the store's limits refuse is answered with store.ErrInvalid as the Outcome's error, one
// whose While does not stand with store.ErrParentLost. The error that is store.ErrSessionGone
// means that the session is not open.
func (s *Store) Acquire(ctx context.Context, want store.Session, claims []store.Claim) ([]store.Outcome, error) {
	out := make([]store.Outcome, len(claims))
	err := s.write(ctx, "acquire", len(claims) > 0, func(t *tx) error {
		o, ok, err := t.live(want)
		if err == nil && !ok {
			err = want.Gone()
		}
		for i := 0; i < len(claims) && err == nil; i++ {
			out[i], err = t.claim(o, claims[i])
		}
		return err
	})
	return out, err
}

func (t *tx) claim(o session, c store.Claim) (out store.Outcome, err error) {
	if err := limits.ValidateClaim(c); err != nil {
		return store.Outcome{Err: failed("acquire", err)}, nil
	}
	if c.While != (store.Held{}) {
		on, _, err := t.record(c.While.Name, t.now)
		if err != nil {
			return out, err
		}
		if !on.is(c.While) {
			err := fmt.Errorf("%q: %w: %q", c.Name, store.ErrParentLost, c.While.Name)
			return store.Outcome{Err: failed("acquire", err)}, nil
		}
	}
	r, found, err := t.record(c.Name, t.now)
	if err != nil {
		return out, err
	}
	own := r.stands && c.Supersedes != 0 && c.Supersedes == r.Token && r.Owner.Incarnation == o.Owner.Incarnation
	switch {
	case r.stands && !own:
		return store.Outcome{Record: r.Record, Err: failed("acquire", r.err())}, nil
	case own:
		out.Replaced = c.Supersedes
	case found: // it has expired, which watches get before what comes after it
		if err := t.remove(c.Name); err != nil {
			return out, err
		}
	}
	out.OK = true
	out.Record, err = t.give(o, c.Name, c.Nonce, c.Metadata)
	return out, err
}

// Release removes the records that still are those ownerships.
func (s *Store) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	out := make([]store.Outcome, len(held))
	err := s.write(ctx, "release", false, func(t *tx) error {
		for i, h := range held {
			r, _, err := t.record(h.Name, t.now)
			if out[i].OK = r.is(h); out[i].OK {
				err = t.remove(h.Name)
			} else {
				out[i].Record = r.Record
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// Transfer decides the moves in order, all at one moment, and is on the disk when it returns. A
// move that the store's limits refuse is answered with store.ErrInvalid, one to a session that
// is not open, or not the offer's owner's, with store.ErrSessionGone, as the Outcome's error.
func (s *Store) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	out := make([]store.Outcome, len(moves))
	err := s.write(ctx, "transfer", len(moves) > 0, func(t *tx) (err error) {
		for i := 0; i < len(moves) && err == nil; i++ {
			out[i], err = t.move(moves[i])
		}
		return err
	})
	return out, err
}

func (t *tx) move(m store.Transfer) (out store.Outcome, err error) {
	r, _, err := t.record(m.Name, t.now)
	if out.Record = r.Record; err != nil || !r.is(m.Held) {
		return out, err
	}
	if err := limits.ValidateTransfer(m); err != nil {
		out.Err = failed("transfer", err)
		return out, nil
	}
	to := store.Session{ID: m.To.Session, Owner: m.To.Owner}
	o, ok, err := t.live(to)
	if err != nil {
		return out, err
	}
	if !ok {
		out.Err = failed("transfer", fmt.Errorf("%q: %w", m.Name, to.Gone()))
		return out, nil
	}
	if m.Metadata == nil {
		m.Metadata = r.Metadata
	}
	out.Record, err = t.give(o, m.Name, m.To.Nonce, m.Metadata)
	out.OK = err == nil
	return out, err
}
