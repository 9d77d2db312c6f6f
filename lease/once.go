package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// Once has f run once in a cluster, however many call it: one caller runs it under l, the others
// wait until it has, and later callers find that it was done. It returns nil when it is done, by
// this caller or another.
//
// done, and not the lease, says that it was done: a lease ends with its holder, and what was
// done outlasts that. done reads what f leaves behind, such as a schema's version, and says true if
// nothing is left for f to do; f must have written that by the time it returns, best in the
// transaction of its work. It must read that where it was written: a replica that lags says false,
// and f is run again. done is asked at the beginning, each time that the lease may be free,
// under the lease before f is called, and after f has returned nil. It does not change anything, and
// may be called from many processes at once.
//
// What may happen:
//
//   - The process that runs f dies half way, or loses the lease: done says false, and f is run
//     again, here or by one that waited, once the lease has ended there. So f must be able to go on
//     from what it left half done, or write all or nothing.
//   - f returns an error under a term that stands: Once returns it, and f is not run again here.
//     One that waits runs it, unless done says true.
//   - done returns an error: Once returns it. What may fail in passing done repeats itself.
//   - f returns nil, and done still says false: an error that is ErrNotDone. Others would run it
//     for ever.
//   - A process that stands still while it runs f may go on beside the next: what f writes should
//     bear the term's token, or be under a lock of the database.
//
// f's context is done when the term ends or ctx does; f's panics and the errors of acquiring are as
// with Run. A process that crashed when f was done delays the others by the rest of its TTL at most.
// That the release failed is logged, and no error: it is done.
func Once(
	ctx context.Context, l Lease, done func(ctx context.Context) (bool, error), f func(ctx context.Context, t Term) error,
) error {
	const what = "lease.Once"
	if err := checkRun(ctx, what, l, f); err != nil {
		return err
	}
	if done == nil {
		return fmt.Errorf("%s: %w: done must not be nil", what, ErrInvalid)
	}
	o := once{l: l, done: done, f: f}
	pauses := backoff{least: 100 * time.Millisecond, most: 10 * time.Second}
	for {
		out, err := runTerm(ctx, what, l, func() error { return o.ask(ctx) }, o.run)
		switch {
		case o.isDone:
			if out.release != nil {
				warn(l)("what is run once is done, and its lease could not be released", zap.String("lease", nameOf(l)), zap.Error(out.release))
			}
			return nil
		case err != nil:
			return err
		case out.loss == nil || ctx.Err() != nil || errors.Is(out.loss, ErrClosed):
			return out.error()
		}
		warn(l)("the lease was lost while what is run once was not done", zap.String("lease", nameOf(l)), zap.Error(out.error()))
		if err := pauses.pause(ctx); err != nil {
			return errors.Join(err, out.error())
		}
	}
}

// once is one call of Once.
type once struct {
	l      Lease
	done   func(ctx context.Context) (bool, error)
	f      func(ctx context.Context, t Term) error
	isDone bool
}

// errDone ends the waiting for a lease that is not needed any more.
var errDone = errors.New("it is done")

// ask asks the user whether it is done: then the error is errDone.
func (o *once) ask(ctx context.Context) error {
	is, err := o.done(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("lease.Once, lease %q: whether it is done: %w", nameOf(o.l), err)
	case is:
		o.isDone = true
		return errDone
	}
	return nil
}

// run is what is run under the lease.
func (o *once) run(ctx context.Context, t Term) error {
	if err := o.ask(ctx); err != nil {
		return err
	}
	if !t.CheckAlive() { // the answer may be old
		return context.Cause(t.Context())
	}
	if err := o.f(ctx, t); err != nil {
		return err
	}
	if err := o.ask(ctx); err != nil {
		return err
	}
	return fmt.Errorf("lease.Once, lease %q: %w", nameOf(o.l), ErrNotDone)
}
