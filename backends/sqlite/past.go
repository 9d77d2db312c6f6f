package sqlite

import (
	"context"
	"fmt"
	"math"
	"time"
)

// past is a connection that takes the write lock for a moment, and what was found then.
type past struct {
	link *link         // nil: to be opened
	now  time.Duration // what has ended by then has ended for good
}

// always is a moment before all.
const always = time.Duration(math.MinInt64)

// passed returns a moment, at or later, such that what has ended by then, in a transaction that
// begins after passed has returned, can't be renewed any more. It reads the clock under the write
// lock, and lets the lock go: who wrote before has committed, and is seen; who writes later reads
// its clock later, under the lock, and renews nothing that is over by it. A reader keeps no one
// from writing. Calls that have waited for each other share what the first has found.
func (s *Store) passed(ctx context.Context, at time.Duration) (time.Duration, error) {
	var p *past
	select {
	case p = <-s.past:
		defer func() { s.past <- p }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return 0, fmt.Errorf("%w: other reads of this store wait for the write lock", ended(ctx))
	}
	if err := s.stands(); err != nil {
		return 0, err
	}
	if p.now < at {
		if err := p.take(ctx, s); err != nil {
			return 0, s.because(err)
		}
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
