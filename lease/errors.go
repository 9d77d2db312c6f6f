package lease

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/store"
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
	// ErrStale: a fence has seen a higher token.
	ErrStale = errors.New("stale fencing token")
	// ErrStop: f returns an error that is ErrStop to end RunForever.
	ErrStop = errors.New("not to be run again")
	// ErrNotDone: what Once ran has returned nil, and its user's done still says that it is not
	// done.
	ErrNotDone = errors.New("it was run, and is not done")
)

// Of stores, under the names by which users meet them; package store says what each means.
var (
	ErrInvalid      = store.ErrInvalid
	ErrUnsupported  = store.ErrUnsupported
	ErrDenied       = store.ErrDenied
	ErrBadRecord    = store.ErrBadRecord
	ErrParentLost   = store.ErrParentLost
	ErrInconsistent = store.ErrInconsistent
	ErrSetback      = store.ErrSetback
)
