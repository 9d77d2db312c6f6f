package lease

import (
	"context"
	"fmt"
)

// TryRun is Run for who does not wait: it makes one attempt (Acquire), and runs f if that wins.
// If another has the lease, the error is ErrHeld, with the holder as a *HeldError where the lease
// is a Keeper's, or can tell its holder (HolderFinder); f is not called. It is ErrHeld, too, while
// another call of Run or of its like, in this process, has the lease or waits for it. It is never
// ErrHeld if f ran: an error of f's that is so, for another lease was held, is returned as its text.
//
// Errors of Acquire are returned as they are: after ErrUnknown the lease may have been free, or
// won and given back. All else is as Run does it.
func TryRun(ctx context.Context, l Lease, f func(ctx context.Context, t Term) error) error {
	const what = "lease.TryRun"
	if err := checkRun(ctx, what, l, f); err != nil {
		return err
	}
	end, err := takeTurn(ctx, what, l, false)
	switch {
	case err != nil:
		return err
	case end == nil:
		return heldError(ctx, l)
	}
	defer end()
	if err := tryAcquire(ctx, l); err != nil {
		return err
	}
	return runUnder(ctx, l, f).tried()
}

// tryAcquire makes one attempt; nil: l is ours.
func tryAcquire(ctx context.Context, l Lease) error {
	if h, ok := l.(*Handle); ok {
		_, err := h.AcquireTerm(ctx)
		return err
	}
	won, err := l.Acquire(ctx)
	if err != nil || won {
		return err
	}
	return heldError(ctx, l)
}

// heldError says that l was not to be had, and by whom it is held, if that can be told.
func heldError(ctx context.Context, l Lease) error {
	err := ErrHeld
	if finder, ok := As[HolderFinder](l); ok {
		if r, held, failed := finder.Holder(ctx); failed == nil && held {
			err = &HeldError{Record: r}
		}
	}
	return fmt.Errorf("lease %q: %w", nameOf(l), err)
}
