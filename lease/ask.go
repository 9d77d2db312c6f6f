package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/store"
)

// This file asks for a name, or about it, and tells all that the answer says.

// HeldError is the answer to an acquisition that was refused: another holds the name. It
// is ErrHeld.
type HeldError struct {
	// Record stood under the name when the store decided: it is of the same answer.
	Record Record
}

// Error says who holds the name.
func (e *HeldError) Error() string {
	o := e.Record.Owner
	at := ""
	if o.Address != "" {
		at = " at " + o.Address
	}
	return fmt.Sprintf("%v by %s%s (incarnation %s) under token %d", ErrHeld, o.ID, at, o.Incarnation, e.Record.Token)
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Acquire implements Lease. It returns after OperationTimeout at the latest,
// then with ErrUnknown.
func (h *Handle) Acquire(ctx context.Context) (bool, error) {
	_, won, err := h.acquire(ctx)
	return won, err
}

// AcquireTerm is Acquire, and tells more: the term that was won, or the one there was
// already; or, as a *HeldError that is ErrHeld, the record that stands. The term may have
// ended since: it says so itself. The other errors are those of Acquire.
func (h *Handle) AcquireTerm(ctx context.Context) (Term, error) {
	o, won, err := h.acquire(ctx)
	switch {
	case err != nil:
		return nil, err
	case !won:
		return nil, h.k.errorf(h.name, o.refused)
	}
	return o.term, nil
}

func (h *Handle) acquire(ctx context.Context) (*op, bool, error) {
	if err := h.check(ctx); err != nil {
		return nil, false, err
	}
	o := &op{h: h}
	if o.term = h.current.Load(); o.term != nil && o.term.CheckAlive() {
		return o, true, nil
	}
	won, err := h.do(ctx, o)
	return o, won, err
}

// Get asks the store for the record of name, of any owner: one request, bounded by
// AttemptTimeout. Errors: ErrNotHeld if it is free, ErrBadRecord if what stands there is no
// record, ErrInvalid (the name), ErrClosed, ctx's, and those of the store; of all but the
// first two nothing is known.
func (k *Keeper) Get(ctx context.Context, name string) (Record, error) {
	if err := k.check(ctx); err != nil {
		return Record{}, err
	}
	if err := store.ValidateName(name); err != nil {
		return Record{}, err
	}
	recs, err := ask(ctx, k, func(ctx context.Context) ([]Record, error) { return k.store.Get(ctx, name) })
	switch {
	case err != nil:
	case len(recs) == 0:
		err = ErrNotHeld
	case recs[0].Token == 0: // it is no record
		err = ErrBadRecord
	default:
		return recs[0], nil
	}
	return Record{}, k.errorf(name, err)
}

// Holder implements HolderFinder, by Keeper.Get.
func (h *Handle) Holder(ctx context.Context) (Record, bool, error) {
	if err := h.check(ctx); err != nil {
		return Record{}, false, err
	}
	rec, err := h.k.Get(ctx, h.name)
	if errors.Is(err, ErrNotHeld) {
		return Record{}, false, nil
	}
	return rec, err == nil, err
}
