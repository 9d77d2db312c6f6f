package lease

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

// Unguarded returns a lease that is always won: for a single process, where
// there is no one to guard against. Its tokens count up with every acquisition
// after a release, for this value alone; they mean nothing beyond it.
func Unguarded(name string) Lease { return &unguarded{name: name} }

type unguarded struct {
	name  string
	last  atomic.Uint64
	state atomic.Pointer[term]
}

func (u *unguarded) Name() string { return u.name }

func (u *unguarded) Acquire(ctx context.Context) (bool, error) {
	if err := ValidateContext(ctx); err != nil {
		return false, fmt.Errorf("lease %q: %w", u.name, err)
	}
	for {
		if u.state.Load() != nil {
			return true, nil
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		s := &session{clock: SystemClock(), kick: func() {}}
		s.window.Store(&window{mono: 1<<63 - 1, wall: 1<<63 - 1})
		t := &term{name: u.name, token: Token(u.last.Add(1)), sess: s}
		if u.state.CompareAndSwap(nil, t) {
			return true, nil
		}
	}
}

func (u *unguarded) Release(ctx context.Context) error {
	if err := ValidateContext(ctx); err != nil {
		return fmt.Errorf("lease %q: %w", u.name, err)
	}
	if t := u.state.Swap(nil); t != nil {
		t.end(ErrReleased)
	}
	return nil
}

func (u *unguarded) CheckAlive() bool { return u.state.Load() != nil }

// OnLost never fires.
func (u *unguarded) OnLost(func(Loss)) func() bool {
	var stopped atomic.Bool
	return func() bool { return !stopped.Swap(true) }
}

func (u *unguarded) Term() (Term, bool) {
	if t := u.state.Load(); t != nil {
		return t, true
	}
	return nil, false
}

func (u *unguarded) Wait(ctx context.Context) error {
	if err := ValidateContext(ctx); err != nil {
		return fmt.Errorf("lease %q: %w", u.name, err)
	}
	return nil
}

// OnFree calls f at once. A panic of it is logged, and harms nothing else.
func (u *unguarded) OnFree(f func()) func() bool {
	if f == nil {
		return func() bool { return false }
	}
	t := time.AfterFunc(0, func() {
		if err := boundary.Contained(f); err != nil {
			boundary.Default().Error("a callback panicked", zap.String("callback", "OnFree"), zap.String("name", u.name), zap.Error(err))
		}
	})
	return t.Stop
}
