package sqlite

import (
	"context"
	"fmt"
	"time"
)

// tx is a transaction that writes, at one moment: now is read when no other can write.
type tx struct {
	*link
	wall func() time.Time
	now  time.Duration
}

// writes are made on one connection, by one call at a time.
type writes struct {
	views
	turn    chan struct{} // the call that has it has the writer
	writer  *link         // nil: to be opened
	wall    func() time.Time
	changed func() // this Store has changed something
}

// write runs f in a transaction, after it has removed some of what has expired. With synced it
// is on the disk before write returns. f may have run though write returns an error.
func (s *writes) write(ctx context.Context, op string, synced bool, f func(t *tx) error) error {
	return s.run(ctx, op, func(waits context.Context) error {
		select {
		case <-s.turn:
		case <-waits.Done():
			return fmt.Errorf("%w: other calls of this store are under way", ended(waits))
		}
		defer func() { s.turn <- struct{}{} }()
		return s.transact(waits, synced, func(t *tx) error {
			err := f(t)
			if err == nil && ctx.Err() != nil {
				err = ended(ctx)
			}
			return err
		})
	})
}

// transact is write for the call that has the turn. ctx is for its waits: once it has the lock, it
// goes on to its end.
func (s *writes) transact(ctx context.Context, synced bool, f func(t *tx) error) (err error) {
	if err := s.stands(); err != nil {
		return err
	}
	if s.writer == nil {
		if s.writer, err = openLink(ctx, s.place.path, false); err != nil {
			return s.because(err)
		}
	}
	l := s.writer
	committing := false
	defer func() {
		if err == nil {
			return
		}
		if !l.rollback() {
			l.close()
			s.writer = nil
		}
		if !committing {
			err = s.because(err)
		}
	}()
	if err := l.synced(synced); err != nil {
		return err
	}
	if err := l.begin(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	m, err := s.same(l, s.seen.Load())
	if err != nil {
		return err
	}
	t := &tx{link: l, wall: s.wall, now: s.clock.now()}
	if err := t.sweep(sweepShare); err != nil {
		return err
	}
	if err := f(t); err != nil {
		return err
	}
	if err := l.get("SELECT last FROM holdfast_meta", nil, &m.last); err != nil {
		return err
	}
	changed := m.last > s.seen.Load()
	if changed {
		const old = "DELETE FROM holdfast_change WHERE seq <= (SELECT max(seq) FROM holdfast_change) - ?"
		if err := l.exec(old, kept); err != nil {
			return err
		}
	}
	committing = true
	if err := l.exec("COMMIT"); err != nil {
		return err
	}
	s.seen.Store(max(s.seen.Load(), m.last))
	if changed {
		s.changed()
	}
	return nil
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
