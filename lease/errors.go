package lease

import (
	"errors"
	"fmt"
)

// Reasons of a loss, in Loss.Reason and as the cause of a term's context.
var (
	// ErrExpired: the deadline passed by the holder's own clock before a renewal
	// succeeded.
	ErrExpired = errors.New("lease expired")
	// ErrLapsed: the deadline passed of a lease that its policy did not renew (RenewNever,
	// RenewOnActivity, RenewByHand) and that was not renewed on request: it ended on time. It is
	// an ErrExpired.
	ErrLapsed = fmt.Errorf("it was not to be renewed: %w", ErrExpired)
	// ErrTakenOver: the store says that the name is another's.
	ErrTakenOver = errors.New("lease taken over")
	// ErrRecordGone: the store says that the record, or its session, is gone.
	ErrRecordGone = errors.New("lease record gone")
	// ErrInconsistent: the store broke its contract, for instance by repeating a
	// token.
	ErrInconsistent = errors.New("lease store inconsistent")
	// ErrSetback: the store's history went back: its data was lost, or an older copy
	// was put in place, so that tokens would go back. It is an ErrInconsistent.
	ErrSetback = fmt.Errorf("the store's history went back: %w", ErrInconsistent)
	// ErrClosed: the Keeper was closed. Also returned by calls after that, and by those
	// that it cut off: these are ErrUnknown, too, if the store may have been asked.
	ErrClosed = errors.New("lease keeper closed")
)

// Causes of a term's context that are no loss.
var (
	ErrReleased    = errors.New("lease released")
	ErrTransferred = errors.New("lease transferred")
)

var (
	// ErrUnknown: no definite answer came within the bounds; the operation may
	// or may not have been applied, now or later.
	ErrUnknown = errors.New("lease outcome unknown")
	// ErrNameInUse: this Keeper has a live handle of that name already.
	ErrNameInUse = errors.New("lease name in use on this keeper")
	// ErrHeld: another holds the name; the error is a *HeldError.
	ErrHeld = errors.New("lease held")
	// ErrNotHeld: the name is free; of an operation that needs a living term: there
	// is none.
	ErrNotHeld = errors.New("lease not held")
	// ErrTransferRefused: the transfer was surely not applied.
	ErrTransferRefused = errors.New("lease transfer refused")
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
	// ErrInvalid: an argument or setting is out of its bounds; the text names it
	// and the bound.
	ErrInvalid = errors.New("invalid")
	// ErrStale: a fence has seen a higher token.
	ErrStale = errors.New("stale fencing token")
	// ErrStop: f returns an error that is ErrStop to end RunForever.
	ErrStop = errors.New("not to be run again")
	// ErrNotDone: what Once ran has returned nil, and its user's done still says that it is not
	// done.
	ErrNotDone = errors.New("it was run, and is not done")
)
