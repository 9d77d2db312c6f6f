package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// readerCount is how many reads run at a time.
const readerCount = 4

// views are taken by the connections that read.
type views struct {
	opened
	readers chan *link // nil ones are to be opened
	past    chan *past // the call that has it may have the write lock for a moment
}

// view is a transaction that reads, so one moment of the file.
type view struct {
	*link
	now   time.Duration
	final bool // what is over by now can't be renewed any more
	over  bool // it has met what is over and may be renewed
}

// tells reports whether a row is yielded.
func (v *view) tells(r row) bool {
	v.over = v.over || r.over && !v.final
	return r.stands
}

// read reads with f on a connection, in a transaction that sees one moment. A session that a
// reader finds over may be renewed nevertheless: by a transaction that began in time and is being
// committed. So that what is reported as gone is gone for good, what has met such a session is read
// again, as of a moment whose past is final: see passed.
func (s *views) read(ctx context.Context, op string, f func(v *view) ([]row, error)) ([]row, error) {
	var rows []row // not a result: the caller may have left when it is written
	err := s.run(ctx, op, func(ctx context.Context) (err error) {
		v := &view{}
		rows, err = s.readWith(ctx, v, f)
		if !v.over || err != nil && !errors.Is(err, store.ErrSessionGone) {
			return err
		}
		// No connection of the readers' is kept meanwhile: others read what stands.
		now, err := s.passed(ctx, v.now)
		if err == nil {
			rows, err = s.readWith(ctx, &view{now: now, final: true}, f)
		}
		return err
	})
	return unless(err, rows) // else rows may be written yet
}

// readWith is one read. The view's now is a moment before it: what stands in the transaction and
// has not ended by then stood at some moment of the call.
func (s *views) readWith(
	ctx context.Context, v *view, f func(v *view) ([]row, error),
) (rows []row, err error) {
	var l *link
	select {
	case l = <-s.readers:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: other reads of this store are under way", ended(ctx))
	}
	defer func() { s.readers <- l }()
	if err := s.stands(); err != nil {
		return nil, err
	}
	if l == nil {
		if l, err = openLink(ctx, s.place.path, false); err != nil {
			return nil, s.because(err)
		}
	}
	v.link = l
	if !v.final {
		v.now = s.clock.now()
	}
	seen := s.seen.Load()
	err = l.begin(ctx, "BEGIN")
	if err == nil {
		// The first statement that reads takes the snapshot, and may find the file locked.
		err = waitFor(ctx, func() error { _, err := s.same(l, seen); return err })
	}
	if err == nil {
		rows, err = f(v)
	}
	if err == nil {
		err = l.exec("COMMIT")
	}
	if err == nil {
		return rows, nil
	}
	if !l.rollback() {
		l.close()
		l = nil
	}
	return nil, s.because(err)
}

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
func (s *views) passed(ctx context.Context, at time.Duration) (time.Duration, error) {
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
		if err := p.take(ctx, &s.opened); err != nil {
			return 0, s.because(err)
		}
	}
	return p.now, nil
}

func (p *past) take(ctx context.Context, f *opened) (err error) {
	if p.link == nil {
		if p.link, err = openLink(ctx, f.place.path, false); err != nil {
			return err
		}
	}
	if err = p.link.begin(ctx, "BEGIN IMMEDIATE"); err == nil {
		p.now = f.clock.now()
	}
	if !p.link.rollback() {
		p.link.close()
		p.link = nil
	}
	return err
}
