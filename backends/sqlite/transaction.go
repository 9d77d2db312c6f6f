package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// readerCount is how many reads run at a time.
const readerCount = 4

// transactions are made on connections of two kinds, each by one call at a time.
type transactions struct {
	opened
	writer  chan *link // one; nil: to be opened
	readers chan *link
	wall    func() time.Time
	changed func() // this Store has changed something
}

// with calls f with a connection of those that wait in from.
func (s *transactions) with(ctx context.Context, from chan *link, f func(l *link) error) (err error) {
	var l *link
	select {
	case l = <-from:
		defer func() { from <- l }()
	case <-ctx.Done():
		return fmt.Errorf("%w: other calls of this store are under way", ended(ctx))
	}
	if err := s.stands(); err != nil {
		return err
	}
	if l == nil {
		if l, err = openLink(ctx, s.place.path, false); err != nil {
			return s.because(err)
		}
	}
	if err = f(l); err != nil && !l.rollback() {
		l.close()
		l = nil
	}
	return err
}

// tx is a transaction that writes, at one moment: now is read when no other can write.
type tx struct {
	*link
	wall  func() time.Time
	now   time.Duration
	trust time.Duration // when the last session that it has opened or renewed ends
}

// write runs f in a transaction, after it has removed some of what has expired. With synced it
// is on the disk before write returns. f may have run though write returns an error.
func (s *transactions) write(ctx context.Context, op string, synced bool, f func(t *tx) error) error {
	return s.run(ctx, op, func(ctx context.Context) error {
		return s.transact(ctx, synced, func(t *tx) error {
			if err := t.sweep(sweepShare); err != nil {
				return err
			}
			return f(t)
		})
	})
}

// transact runs f in a transaction that has the write lock. ctx is for the wait for that: then it goes
// on to its end.
func (s *transactions) transact(ctx context.Context, synced bool, f func(t *tx) error) error {
	return s.with(ctx, s.writer, func(l *link) error {
		m, err := s.decide(ctx, l, synced, f)
		if err != nil {
			return s.because(err)
		}
		if err := l.exec("COMMIT"); err != nil {
			return err
		}
		if was := s.seen.Load(); m.last > was {
			s.seen.Store(m.last)
			s.changed()
		}
		return nil
	})
}

// decide is transact up to the commit.
func (s *transactions) decide(ctx context.Context, l *link, synced bool, f func(t *tx) error) (m meta, err error) {
	if err := l.synced(synced); err != nil {
		return m, err
	}
	if err := l.begin(ctx, "BEGIN IMMEDIATE"); err != nil {
		return m, err
	}
	seen := s.seen.Load()
	if m, err = s.same(l, seen); err != nil {
		return m, err
	}
	t := &tx{link: l, wall: s.wall, now: s.clock.now()}
	if err := f(t); err != nil {
		return m, err
	}
	if err := s.trust(t.trust); err != nil {
		return m, err
	}
	if err = l.get("SELECT last FROM holdfast_meta", nil, &m.last); err == nil && m.last > seen {
		const old = "DELETE FROM holdfast_change WHERE seq <= (SELECT max(seq) FROM holdfast_change) - ?"
		err = l.exec(old, kept)
	}
	return m, err
}

// sweepShare is how many records that have ended one transaction removes, beside what it does.
const sweepShare = 200

// sweep removes up to share records of sessions that are over, and these with the last of their records.
func (t *tx) sweep(share int64) error {
	var over []int64
	err := t.each("SELECT id FROM holdfast_session WHERE ends <= ? ORDER BY ends LIMIT ?", []any{int64(t.now), share},
		func(scan func(...any) error) error {
			var id int64
			err := scan(&id)
			over = append(over, id)
			return err
		})
	for _, id := range over {
		if err != nil || share <= 0 {
			break
		}
		var n int64
		n, err = t.end(id, share)
		share -= n
	}
	return err
}

// end removes up to share records of a session and, if that were all, the session.
func (t *tx) end(id, share int64) (removed int64, err error) {
	removed, err = t.change(`DELETE FROM holdfast_lease WHERE name IN
		(SELECT name FROM holdfast_lease WHERE session = ? AND format = 1 LIMIT ?)`, id, share)
	if err == nil && removed < share {
		err = t.exec("DELETE FROM holdfast_session WHERE id = ?", id)
	}
	return removed, err
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
	v.over = v.over || !r.stands && !v.final
	return r.stands
}

// read reads with f on a connection, in a transaction that sees one moment. A session that a
// reader finds over may be renewed nevertheless: by a transaction that began in time and is being
// committed. So that what is reported as gone is gone for good, what has met such a session is read
// again, as of a moment whose past is final: the clock is read under the write lock, which is let go
// before the second read. Who wrote before has committed, and is seen; who writes later reads its clock
// later, under the lock, and renews nothing that is over by it. A reader keeps no one from writing.
func (s *transactions) read(ctx context.Context, op string, f func(v *view) ([]row, error)) (rows []row, err error) {
	err = s.run(ctx, op, func(ctx context.Context) (err error) {
		v := &view{}
		rows, err = s.readWith(ctx, v, f)
		if !v.over || err != nil && !errors.Is(err, store.ErrSessionGone) {
			return err
		}
		// No connection of the readers' is kept meanwhile: others read what stands.
		last := &view{final: true}
		err = s.transact(ctx, false, func(t *tx) error { last.now = t.now; return nil })
		if err == nil {
			rows, err = s.readWith(ctx, last, f)
		}
		return err
	})
	return rows, err
}

// readWith is one read. The view's now is a moment before it: what stands in the transaction and
// has not ended by then stood at some moment of the call.
func (s *transactions) readWith(
	ctx context.Context, v *view, f func(v *view) ([]row, error),
) (rows []row, err error) {
	err = s.with(ctx, s.readers, func(l *link) error {
		v.link = l
		if !v.final {
			v.now = s.clock.now()
		}
		seen := s.seen.Load()
		err := l.begin(ctx, "BEGIN")
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
		return s.because(err)
	})
	return rows, err
}
