package lease

import (
	"context"
	"fmt"
)

// This file asks bare leases whether they are alive. One that panics is not.

// asked is what alive returns. If that panics it is false, and the term ends with the reason.
func asked(alive func() bool, end context.CancelCauseFunc) (is bool) {
	defer func() {
		if p := recover(); p != nil {
			end(fmt.Errorf("%w: CheckAlive panicked: %v", ErrInconsistent, p))
		}
	}()
	return alive()
}

// endUnlessAlive ends a term whose lease is not alive, or can't be asked.
func endUnlessAlive(l Lease, end context.CancelCauseFunc) {
	if !asked(l.CheckAlive, end) {
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
