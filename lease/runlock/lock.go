package runlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

// Lock is one worker's right to a run, from Try to Release. Safe for concurrent use.
type Lock struct {
	l    *Locks
	h    *lease.Handle
	term lease.Term
}

// Term is the ownership: its token, and the context that is done when the lock is lost or released.
// It is heartbeats that keep it, which need nothing of the worker. A Lock that is lost stays so. Of
// one that Locks.Try has not made it is nil.
func (k *Lock) Term() lease.Term {
	if k == nil {
		return nil
	}
	return k.term
}

// Release gives the lock up, after the work has stopped. On an error, lease.ErrUnknown or
// lease.ErrDenied, it goes on in the background, or the TTL ends it. It does nothing when it is
// called again.
func (k *Lock) Release(ctx context.Context) error {
	if err := k.check(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	k.l.held.CompareAndDelete(k.h.Name(), k.h)
	return k.h.Close(ctx)
}

func (k *Lock) check(ctx context.Context) error {
	if k == nil || k.h == nil || k.term == nil {
		return fmt.Errorf("runlock.Lock: %w: the zero value, must come from Locks.Try", lease.ErrInvalid)
	}
	return input.Context(ctx, lease.ErrInvalid)
}

// Around runs f if no other worker has the run, under its lock, which it releases when f has
// returned: as lease.TryRun does it, which see. If another has it the error is that of Try,
// lease.ErrHeld. Within an f of the same run it runs f at once, under the lock that there is: if ctx
// comes from that f's. It is for the hooks of an engine around resume and restart.
func (l *Locks) Around(ctx context.Context, workflow, run string, f func(ctx context.Context, t lease.Term) error) error {
	name, err := l.check(ctx, workflow, run)
	if err != nil {
		return err
	}
	if f == nil {
		return fmt.Errorf("runlock.Around %q: f: %w: nil", name, lease.ErrInvalid)
	}
	at := key{l, name}
	if t, ok := ctx.Value(at).(lease.Term); ok && t.CheckAlive() {
		within, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(t.Context(), func() { cancel(context.Cause(t.Context())) })()
		err := f(within, t)
		if errors.Is(err, lease.ErrHeld) { // of another run: here it would say that f did not run
			err = errors.New(err.Error())
		}
		return err
	}
	lock, err := l.open(ctx, workflow, run)
	if err != nil {
		return err
	}
	defer l.drop(lock.h)
	return lease.TryRun(ctx, bounded{lock.h}, func(ctx context.Context, t lease.Term) error {
		return f(context.WithValue(ctx, at, t), t)
	})
}

// key is that of a context of the f of an Around: for the term.
type key struct {
	l    *Locks
	name string
}

// bounded is a handle whose requests take no longer than the timeout.
type bounded struct{ *lease.Handle }

func (b bounded) Acquire(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return b.Handle.Acquire(ctx)
}

func (b bounded) Release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return b.Handle.Release(ctx)
}

func (b bounded) Holder(ctx context.Context) (lease.Record, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return b.Handle.Holder(ctx)
}
