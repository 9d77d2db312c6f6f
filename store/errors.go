package store

import (
	"errors"
	"fmt"
)

// What a store answers, by errors.Is. Package lease has those that its users meet under the same names.
var (
	// ErrInvalid: an argument or setting is out of its bounds; the text names it
	// and the bound.
	ErrInvalid = errors.New("invalid")
	// ErrUnsupported: the store can't do that.
	ErrUnsupported = errors.New("not supported by the lease store")
	// ErrDenied: the store refuses, and will until its operator changes something there: a
	// permission or credential, a schema that is missing, a store that is read-only. As
	// the error of a call it is definite, nothing of the call was applied. The Keeper tries
	// an operation no further, and answers its caller with it; what it does in the
	// background it repeats at a slow pace, so that it goes on when it is allowed again. A
	// renewal that is denied is no loss before the deadline.
	ErrDenied = errors.New("denied by the lease store")
	// ErrSessionGone: the session has expired or was closed.
	ErrSessionGone = errors.New("lease session gone")
	// ErrBadRecord: what stands under a name is no record this version can read, be
	// it foreign or of a newer format. The name is held, by an owner that is not
	// known: it can't be acquired, and waiters wait until it is deleted. So a new
	// format is read one release before any release writes it.
	ErrBadRecord = errors.New("not a lease record")
	// ErrInconsistent: the store broke its contract, for instance by repeating a
	// token.
	ErrInconsistent = errors.New("lease store inconsistent")
	// ErrSetback: the store's history went back: its data was lost, or an older copy
	// was put in place, so that tokens would go back. It is an ErrInconsistent.
	ErrSetback = fmt.Errorf("the store's history went back: %w", ErrInconsistent)
	// ErrParentLost: the ownership that a claim hangs on (Claim.While) does not stand. Of a lease: the
	// reason of the loss of a term whose parent's has ended, and what Acquire returns while the parent
	// has none; it is lease.ErrClosed, too, if the parent was closed, and there will never be one.
	ErrParentLost = errors.New("lease parent lost")
)
