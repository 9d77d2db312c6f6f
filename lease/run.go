package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

// Run is the whole thing for code without actors: it waits until l is ours, runs
// f with a context that is done when the term ends or ctx is, waits for f to
// return, and releases l. One term, one call of f: to go on after a loss, call
// Run again. Calls of Run for one lease, through whatever wrappers (Unwrap), take
// turns: the next begins when the one before has released. So f must not wait for a
// Run of its own lease.
//
// It returns f's error, joined with the reason if the term ended before f
// returned (errors.Is: ErrExpired, ErrTakenOver, …; f is not called if it ended
// before f could begin) and with Release's error. An
// acquisition that fails is tried again, and so is one that another wins;
// ErrClosed, ErrBadRecord, ErrInvalid and the end of ctx make Run return
// without calling f; the end of ctx together with why the last attempt failed, if it
// did. The first of several attempts that fail is logged. A panic of f is passed on after the release.
func Run(ctx context.Context, l Lease, f func(ctx context.Context, t Term) error) error {
	o, err := runTerm(ctx, "lease.Run", l, nil, f)
	if err != nil {
		return err
	}
	return o.error()
}

// runTerm waits until l is ours, and runs f under it. An error means that f was not called, and
// that l is not ours. Before each attempt to acquire it asks before, if there is one, and ends
// with its error.
func runTerm(
	ctx context.Context, what string, l Lease, before func() error, f func(ctx context.Context, t Term) error,
) (o outcome, err error) {
	if err := checkRun(ctx, what, l, f); err != nil {
		return o, err
	}
	end, err := takeTurn(ctx, what, l, true)
	if err != nil {
		return o, err
	}
	defer end()
	if err := await(ctx, l, before); err != nil {
		return o, err
	}
	return runUnder(ctx, l, f), nil
}

// checkRun checks what runs are given.
func checkRun(ctx context.Context, what string, l Lease, f func(ctx context.Context, t Term) error) error {
	if err := input.Context(ctx, ErrInvalid); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if input.Nil(l) || f == nil {
		return fmt.Errorf("%s: %w: the lease and f must not be nil", what, ErrInvalid)
	}
	return nil
}

// outcome is what became of f under one term.
type outcome struct {
	err     error // f's
	loss    error // why the term had ended before f returned, or before it could begin; nil: it had not
	release error
}

func (o outcome) error() error { return errors.Join(o.err, o.loss, o.release) }

// tried is error for callers to whom ErrHeld says that f did not run: of an f that returned such, the
// text.
func (o outcome) tried() error {
	if errors.Is(o.err, ErrHeld) {
		o.err = errors.New(o.err.Error())
	}
	return o.error()
}

// runUnder runs f under l, which was just acquired, and releases it.
func runUnder(ctx context.Context, l Lease, f func(ctx context.Context, t Term) error) (o outcome) {
	t, stop := TermOf(l)
	defer stop()
	work, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(t.Context(), func() { cancel(context.Cause(t.Context())) })()
	release := func() {
		if !t.CheckAlive() {
			o.loss = ErrExpired
			if c := context.Cause(t.Context()); c != nil {
				o.loss = c
			}
		}
		cancel(nil)
		// What f held must be given up even if ctx is done.
		o.release = l.Release(context.WithoutCancel(ctx))
	}
	// Also if f panics.
	defer release()
	if t.CheckAlive() { // else it was lost before the work began
		o.err = f(work, t)
	}
	return o
}

// await acquires l, however long that takes. Before each attempt it asks before, if there is
// one, and ends with its error.
func await(ctx context.Context, l Lease, before func() error) error {
	pauses := backoff{least: time.Second, most: 10 * time.Second}
	var last error // of the attempts, if they fail now
	ended := func(err error) error {
		if last != nil {
			err = fmt.Errorf("%w; it could not be acquired: %w", err, last)
		}
		return err
	}
	for {
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		won, err := l.Acquire(ctx)
		switch {
		case won:
			return nil
		case ctx.Err() != nil:
			return ended(ctx.Err())
		case errors.Is(err, ErrClosed), errors.Is(err, ErrBadRecord), errors.Is(err, ErrInvalid):
			return err
		}
		if err != nil && last == nil && !errors.Is(err, ErrParentLost) { // that is not out of order
			warn(l)("can't be acquired, trying on", zap.String("lease", nameOf(l)), zap.Error(err))
		}
		last = err
		if w, ok := As[Waiter](l); ok && err == nil {
			if err := w.Wait(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil && !errors.Is(err, ErrDenied) {
			pauses.reset() // a store that failed may be back any moment
		}
		var begins <-chan struct{}
		if errors.Is(err, ErrParentLost) {
			begins = parentOf(l)
		}
		if err := pauses.rest(ctx, begins, nil, nil); err != nil {
			return ended(err)
		}
	}
}

// warn returns where a warning about l is logged: its Keeper's log, which tells of an
// outage by itself, or the default.
func warn(l Lease) func(string, ...zap.Field) {
	inner, _ := innermost(l)
	if h, ok := inner.(*Handle); ok {
		return h.k.aside
	}
	return boundary.Default().Warn
}

// parentOf returns Handle.parentBegins of the innermost of l.
func parentOf(l Lease) <-chan struct{} {
	inner, _ := innermost(l)
	if h, ok := inner.(*Handle); ok {
		return h.parentBegins()
	}
	return nil
}

func nameOf(l Lease) string {
	if n, ok := As[interface{ Name() string }](l); ok {
		return n.Name()
	}
	return fmt.Sprintf("%T", l)
}

// TermOf returns the term of a lease that was just acquired. What wraps a lease may
// narrow it: the term is alive while the outermost is, too, and its context ends with
// the outermost's OnLost as well. For a lease that
// has none (As finds no Termed) it makes one from CheckAlive and OnLost: its
// token is 0, and its clock is the system's. If the lease is not alive any more
// the term has ended. A CheckAlive of l, or a Check of its own Term, that panics ends the term, with
// a cause that is ErrInconsistent, and is not called again. stop frees what it registered, and
// ends a term that was made so: not the lease's own.
func TermOf(l Lease) (t Term, stop func()) {
	td, termed := As[Termed](l)
	if !termed {
		n := narrowed(bareTerm{l}, l)
		return n, n.follow()
	}
	var outer Lease
	if n, ok := td.(narrow); ok {
		td, outer = n.Termed, n.outer
	}
	t, ok := td.Term()
	if _, ours := t.(*term); ok && ours && outer == nil {
		return t, func() {}
	}
	if ok = ok && !input.Nil(t); !ok {
		t, outer = bareTerm{l}, nil
	}
	n := narrowed(t, outer)
	if stop = n.follow(); !ok {
		n.end(ErrExpired)
	}
	return n, stop
}

// bareTerm is the term of a lease that has none of its own, to be narrowed by that. The name is the
// innermost's.
type bareTerm struct{ l Lease }

func (b bareTerm) Name() string               { return nameOf(b.l) }
func (bareTerm) Token() Token                 { return 0 }
func (bareTerm) Context() context.Context     { return context.Background() }
func (bareTerm) CheckAlive() bool             { return true }
func (bareTerm) Check() (time.Duration, bool) { return store.SystemClock().Now().Mono, true }
