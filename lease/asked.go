package lease

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/routines"
)

// This file asks leases of users' whether they are alive. One that panics, or ends the
// goroutine, is not: who is asked for every message would otherwise fail at every message.

// asked is what alive returns. If that panics, or ends the goroutine (runtime.Goexit, which
// goes on), it is false, and end is told why before.
func asked(alive func() bool, end context.CancelCauseFunc) (is bool) {
	returned := false
	defer func() {
		if !returned {
			end(broken(recover()))
		}
	}()
	is = alive()
	returned = true
	return is
}

// broken is why a term ends whose lease can't be asked.
func broken(with any) error {
	if with == nil {
		return fmt.Errorf("%w: CheckAlive: %w", ErrInconsistent, routines.ErrEnded)
	}
	return fmt.Errorf("%w: CheckAlive panicked: %v", ErrInconsistent, with)
}

// endUnlessAlive ends a term whose lease is not alive, or can't be asked. It survives a lease
// that ends the goroutine.
func endUnlessAlive(l Lease, end context.CancelCauseFunc) {
	alive := false
	_ = routines.Apart(func() error { alive = asked(l.CheckAlive, end); return nil })
	if !alive {
		end(ErrExpired) // unless it said why
	}
}

// endBy returns what ends a term when its lease tells of a loss.
func endBy(end context.CancelCauseFunc) func(Loss) {
	return func(loss Loss) {
		reason := loss.Reason
		if reason == nil {
			reason = ErrExpired
		}
		end(reason)
	}
}
