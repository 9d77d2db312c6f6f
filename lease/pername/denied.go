package pername

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/lease"
)

// whole is the error of a call for many names: lease.ErrDenied, which is definite for all of
// them, only if all that failed was denied and nothing was applied.
func whole(outs []lease.Outcome, errs []error) error {
	err := errors.Join(errs...)
	doubt := func(err error) bool { return err != nil && !errors.Is(err, lease.ErrDenied) }
	if slices.ContainsFunc(errs, doubt) || slices.ContainsFunc(outs, func(o lease.Outcome) bool { return o.OK }) {
		return vague(err)
	}
	return err
}

// vague is err, which is not lease.ErrDenied: a part of the call is done, or may be.
func vague(err error) error {
	if errors.Is(err, lease.ErrDenied) {
		return fmt.Errorf("%w, after a part was done, or may be: %v", lease.ErrUnknown, err)
	}
	return err
}
