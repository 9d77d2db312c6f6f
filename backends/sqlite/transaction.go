package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

// tx is a transaction that writes, at one moment: now is read when no other can write.
type tx struct {
	*link
	s   *Store
	now time.Duration
}

// run runs f on a goroutine of its own, which Close waits for: its caller leaves when ctx is done,
// also where a disk hangs. What f assigns is not to be looked at after an error. The context that f
// gets is for what waits: it is done when ctx is, and when Close has begun.
func (s *Store) run(ctx context.Context, op string, f func(ctx context.Context) error) error {
	if err := input.Context(ctx, store.ErrInvalid); err != nil {
		return failed(op, err)
	}
	if s.place == nil {
		return failed(op, errUnmade)
	}
	if ctx.Err() != nil {
		return failed(op, ended(ctx))
	}
	done := make(chan error, 1)
	if err := s.enter(func() {
		var err error
		defer func() { done <- err }()
		defer boundary.Contain(&err)
		waits, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(s.life, func() { cancel(errClosed) })()
		err = f(waits)
	}); err != nil {
		s.leaveReplaced()
		return failed(op, err)
	}
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		grace := time.NewTimer(graceToSay)
		defer grace.Stop()
		select {
		case err = <-done: // it says what it waited for, or has ended, too
		case <-grace.C:
			err = fmt.Errorf("%w: the disk has not answered", ended(ctx))
		}
	}
	if err != nil {
		return failed(op, err)
	}
	return nil
}

// graceToSay is for what waits for a lock to say so when its context has ended.
const graceToSay = 5 * time.Millisecond

// write runs f in a transaction, after it has removed some of what has expired. With synced it
// is on the disk before write returns. f may have run though write returns an error.
func (s *Store) write(ctx context.Context, op string, synced bool, f func(t *tx) error) error {
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
func (s *Store) transact(ctx context.Context, synced bool, f func(t *tx) error) (err error) {
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
	m, err := readMeta(l)
	if err == nil {
		err = m.is(s, s.seen.Load())
	}
	if err != nil {
		return s.died(err)
	}
	t := &tx{link: l, s: s, now: s.clock.now()}
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
		s.kick()
	}
	return nil
}

// stands returns an error if the file is not the one that was opened.
func (s *Store) stands() error {
	err := s.place.replaced()
	if err != nil {
		return s.died(err)
	}
	return nil
}

// because returns why a transaction that was surely not applied has failed. The file may have been
// replaced since it stood: what SQLite found at the path is then another's.
func (s *Store) because(err error) error {
	if is := s.stands(); errors.Is(is, ErrReplaced) && !errors.Is(err, store.ErrSetback) {
		return fmt.Errorf("%w: %v", is, err)
	}
	return denied(err)
}

// died notes for good an error that says that the file is not the one that was opened.
func (s *Store) died(err error) error {
	if errors.Is(err, store.ErrSetback) {
		s.mu.Lock()
		if s.dead == nil {
			s.dead = err
			s.follow.endLocked(err)
		}
		s.mu.Unlock()
	}
	return err
}

// trust notes that a session is believed in for ttl from now.
func (s *Store) trust(now, ttl time.Duration) {
	for end := int64(later(now, ttl)); ; {
		was := s.trusted.Load()
		if was >= end || s.trusted.CompareAndSwap(was, end) {
			return
		}
	}
}

// leaveReplaced makes room for others at the path, if the file was replaced and no holder can
// believe any more in what was held in it through this Store.
func (s *Store) leaveReplaced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead != nil && int64(s.clock.now()) > s.trusted.Load() {
		s.place.leave()
	}
}
