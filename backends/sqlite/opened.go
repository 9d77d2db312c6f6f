package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

// opened is the file that a Store has opened.
type opened struct {
	place *place
	clock clock
	id    string // of the generation

	seen    atomic.Int64 // the highest token of the file that was seen
	trusted atomic.Int64 // when the last session that was opened or renewed here has ended

	life    context.Context // Close ends it
	end     context.CancelFunc
	mu      sync.Mutex // guards what follows, and the follower
	closed  bool
	dead    error // why the file is not the one that was opened
	running sync.WaitGroup
	lost    func(error) // ends the watches; called with mu
}

// run runs do on a goroutine of its own, which Close waits for: its caller leaves when ctx is done,
// also where a disk hangs. What do assigns is not to be looked at after an error. The context of do
// is for what waits: it is done when ctx is, and when Close has begun.
func (f *opened) run(ctx context.Context, op string, do func(ctx context.Context) error) error {
	if err := input.Context(ctx, store.ErrInvalid); err != nil {
		return failed(op, err)
	}
	if f.place == nil {
		return failed(op, errUnmade)
	}
	if ctx.Err() != nil {
		return failed(op, ended(ctx))
	}
	done := make(chan error, 1)
	if err := f.enter(func() {
		var err error
		defer func() { done <- err }()
		defer boundary.Contain(&err)
		waits, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(f.life, func() { cancel(errClosed) })()
		err = do(waits)
	}); err != nil {
		f.leaveReplaced()
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

// unless returns v, which run has assigned, unless that failed.
func unless[T any](err error, v []T) ([]T, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// graceToSay is for what waits for a lock to say so when its context has ended.
const graceToSay = 5 * time.Millisecond

// stands returns an error if the file is not the one that was opened.
func (f *opened) stands() error {
	return f.died(f.place.replaced())
}

// same returns what the tables say of the file, and an error if it is not the one that was opened.
// seen is a token that was seen before.
func (f *opened) same(l *link, seen int64) (meta, error) {
	m, err := readMeta(l)
	if err == nil {
		err = m.is(f.clock, f.id, seen)
	}
	return m, f.died(err)
}

// because returns why a transaction that was surely not applied has failed. The file may have been
// replaced since it stood: what SQLite found at the path is then another's.
func (f *opened) because(err error) error {
	if is := f.stands(); errors.Is(is, ErrReplaced) && !errors.Is(err, store.ErrSetback) {
		return fmt.Errorf("%w: %v", is, err)
	}
	return denied(err)
}

// died notes for good an error that says that the file is not the one that was opened.
func (f *opened) died(err error) error {
	if errors.Is(err, store.ErrSetback) {
		f.mu.Lock()
		if f.dead == nil {
			f.dead = err
			f.lost(err)
		}
		f.mu.Unlock()
	}
	return err
}

// trust notes that a session is believed in for ttl from now.
func (f *opened) trust(now, ttl time.Duration) {
	for end := int64(later(now, ttl)); ; {
		was := f.trusted.Load()
		if was >= end || f.trusted.CompareAndSwap(was, end) {
			return
		}
	}
}

// leaveReplaced makes room for others at the path, if the file was replaced and no holder can
// believe any more in what was held in it through this Store.
func (f *opened) leaveReplaced() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead != nil && int64(f.clock.now()) > f.trusted.Load() {
		f.place.leave()
	}
}

// enter begins do on a goroutine of its own, which Close waits for.
func (f *opened) enter(do func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return errClosed
	case f.dead != nil:
		return f.dead
	}
	f.running.Go(do)
	return nil
}
