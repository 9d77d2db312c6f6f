package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

// opened is the file that a Store has opened.
type opened struct {
	place *place
	clock clock
	id    string       // of the generation
	seen  atomic.Int64 // the highest token of the file that was seen

	life    context.Context // ends with Close, or when the file is not the one that was opened
	end     context.CancelCauseFunc
	mu      sync.Mutex    // guards what follows, and the beginning of calls
	trusted time.Duration // when the last session that was opened or renewed here has ended
	running sync.WaitGroup
}

// run calls do with a context for its waits, which is done when ctx is, and when the Store's life
// ends. Close waits for it.
func (f *opened) run(ctx context.Context, op string, do func(ctx context.Context) error) error {
	if err := f.enter(ctx); err != nil {
		return failed(op, err)
	}
	defer f.running.Done()
	waits, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(f.life, func() { cancel(context.Cause(f.life)) })()
	return failed(op, do(waits))
}

func (f *opened) enter(ctx context.Context) error {
	if err := input.Call(ctx, f.place != nil, "sqlite.New", store.ErrInvalid); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.life.Err() != nil {
		if f.gone() != nil && f.clock.now() > f.trusted { // no holder believes any more in what it held in this file
			f.place.leave()
		}
		return context.Cause(f.life)
	}
	f.running.Add(1)
	return nil
}

// stands returns an error if the file is not the one that was opened.
func (f *opened) stands() error { return f.died(f.place.replaced()) }

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
	if err == nil {
		return nil
	}
	if is := f.stands(); errors.Is(is, ErrReplaced) && !errors.Is(err, store.ErrSetback) {
		return fmt.Errorf("%w: %v", is, err)
	}
	return denied(err)
}

// died ends the Store's life by an error that says that the file is not the one that was opened.
func (f *opened) died(err error) error {
	if errors.Is(err, store.ErrSetback) {
		f.end(err)
	}
	return err
}

// gone is why the Store's life has ended, unless it goes on or was closed.
func (f *opened) gone() error {
	if err := context.Cause(f.life); errors.Is(err, store.ErrSetback) {
		return err
	}
	return nil
}

// trust notes until when a holder will believe in a session. After an error no holder may: others can
// have the path by now.
func (f *opened) trust(until time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trusted = max(f.trusted, until)
	return f.gone()
}
