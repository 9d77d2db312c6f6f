package lease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// This file renews leases at their owners' wish.

// Renewal returns the policy that the lease was made with.
func (h *Handle) Renewal() Renewal {
	if h.k == nil {
		return Renewal{}
	}
	return h.pool.renewal
}

// Renew asks the store to extend the present term's session, and returns once that is so: from then
// on it is trusted for a trust window from a moment after the call began. It is for RenewByHand;
// with the others it does no harm, and all leases of the session are renewed with this one. Calls
// of the same moment for one session share a request.
//
// It tries on, after pauses that grow, until ctx ends, OperationTimeout has passed or the term
// ends. With the end of ctx and with OperationTimeout the error is ErrUnknown, and what was asked
// for goes on in the background until the deadline. Other errors: ErrNotHeld if there is no living
// term, why the term ended meanwhile (the reasons of Loss, ErrReleased, ErrTransferred), ErrDenied,
// ErrClosed, and ErrInvalid with RenewNever: such a lease ends on time. None of them ends the term.
func (h *Handle) Renew(ctx context.Context) error {
	if err := h.check(ctx); err != nil {
		return err
	}
	if err := h.renew(ctx); err != nil {
		return h.k.errorf(h.name, err)
	}
	return nil
}

func (h *Handle) renew(ctx context.Context) error {
	k := h.k
	if h.pool.renewal.way == notAtAll {
		return fmt.Errorf("lease.Handle.Renew: %w: made with RenewNever, must be another policy", ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t := h.current.Load()
	if t == nil || !t.CheckAlive() {
		return h.notHeld()
	}
	over := t.Context() // made without the lock
	late := make(chan struct{})
	defer k.clock.AfterFunc(k.cfg.OperationTimeout, func() { close(late) }).Stop()

	k.mu.Lock()
	defer k.mu.Unlock()
	s, asked := t.sess, k.clock.Now().Mono
	s.wanted = max(s.wanted, asked)
	k.kick()
	for s.renewed < asked {
		answered := s.answeredLocked()
		why := fmt.Errorf("no definite answer within %v", k.cfg.OperationTimeout)
		k.mu.Unlock()
		select {
		case <-answered:
			why = nil
		case <-over.Done():
			why = nil
		case <-late:
		case <-ctx.Done():
			why = ctx.Err()
		}
		k.mu.Lock()
		switch {
		case s.renewed >= asked:
		case over.Err() != nil:
			return context.Cause(over)
		case why == nil && s.failures > 0 && errors.Is(s.failure, ErrDenied):
			return s.failure
		case why != nil && s.failures > 0:
			return fmt.Errorf("%w, the last attempt: %w", unknown(why), s.failure)
		case why != nil:
			return unknown(why)
		}
	}
	if !t.CheckAlive() { // the Keeper sees it, and says why
		k.mu.Unlock()
		defer k.mu.Lock()
		select {
		case <-over.Done():
			return context.Cause(over)
		case <-k.ctx.Done():
			return ErrClosed
		}
	}
	return nil
}

// ShouldRenew reports whether the lease is held, and this fraction of its trust window or more has
// passed since a renewal was sent that the store confirmed: whether it is time to call Renew, for
// RenewByHand. It asks nothing of the store.
func (h *Handle) ShouldRenew(fraction float64) bool {
	t := h.current.Load()
	if t == nil || !t.CheckAlive() {
		return false
	}
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	return float64(t.sess.remaining(h.k.clock.Now())) <= (1-fraction)*float64(h.k.cfg.window(t.sess.TTL))
}

func (h *Handle) notHeld() error {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	if h.k.closing || h.closed {
		return ErrClosed
	}
	return ErrNotHeld
}

// Touch says that the lease is in use. With RenewOnActivity that keeps it; with other policies, and
// while it is not held, it does nothing. It takes no lock and allocates nothing.
func (h *Handle) Touch() {
	t := h.current.Load()
	if t == nil || t.sess.activity.Load() == touched || !t.CheckAlive() { // after its end it is of no use
		return
	}
	if t.sess.activity.Swap(touched) == wanted {
		h.k.kick()
	}
}

// activity tells a session's loop that its lease is in use.
type activity struct{ atomic.Int32 }

const (
	quiet   int32 = iota
	touched       // since the last renewal was due
	wanted        // a renewal is due, and begins with the next touch, which kicks the loop
)

// take reports whether there was a touch since it was called last. If there was none, the next is
// wanted.
func (a *activity) take() bool {
	for {
		now := a.Load()
		next := wanted
		if now == touched {
			next = quiet
		}
		if a.CompareAndSwap(now, next) {
			return now == touched
		}
	}
}

// answeredLocked is closed when the next renewal of s is answered, or fails.
func (s *session) answeredLocked() <-chan struct{} {
	if s.answered == nil {
		s.answered = make(chan struct{})
	}
	return s.answered
}

func (s *session) tellAnsweredLocked() {
	if s.answered != nil {
		close(s.answered)
		s.answered = nil
	}
}
