package sqlite

import (
	"context"
	"time"
)

// past is a connection that takes the write lock for a moment, and what was found then.
type past struct {
	link *link         // nil: to be opened
	now  time.Duration // what has ended by then has ended for good
}

// passed returns a moment such that what has ended by then, in a transaction that begins later,
// can't be renewed any more. It reads the clock under the write lock, and lets the lock go: who
// wrote before has committed, and is seen; who writes later reads its clock later, under the lock,
// and renews nothing that is over by it. Who reads keeps nobody from writing.
func (s *Store) passed(ctx context.Context) (time.Duration, error) {
	var p *past
	select {
	case p = <-s.past:
	case <-ctx.Done():
		return 0, ended(ctx)
	}
	defer func() { s.past <- p }()
	if err := s.stands(); err != nil {
		return 0, err
	}
	if err := p.take(ctx, s); err != nil {
		return 0, denied(err)
	}
	return p.now, nil
}

func (p *past) take(ctx context.Context, s *Store) (err error) {
	if p.link == nil {
		if p.link, err = openLink(ctx, s.place.path, false); err != nil {
			return err
		}
	}
	if err = p.link.begin(ctx, "BEGIN IMMEDIATE"); err == nil {
		p.now = s.clock.now()
	}
	if !p.link.rollback() {
		p.link.close()
		p.link = nil
	}
	return err
}
