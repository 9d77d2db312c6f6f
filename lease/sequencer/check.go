package sequencer

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

// Reader asks the store for one record. A *lease.Keeper is one.
type Reader interface {
	// Get returns the record that stands under name, or an error that is lease.ErrNotHeld if
	// it is free. After any other error nothing is known. It returns when ctx ends.
	Get(ctx context.Context, name string) (lease.Record, error)
}

// StaleError says that a sequencer's ownership is not the present one. It is lease.ErrStale; that
// of a free name is lease.ErrNotHeld, too.
type StaleError struct {
	Sequencer Sequencer
	// Seen is the token of the record that stands, or the highest that a fence has seen. 0:
	// the name is free, and no later ownership is known.
	Seen lease.Token
}

// Superseded reports whether a later ownership is known. If not, the lease has ended, or its store
// never gave that token.
func (e *StaleError) Superseded() bool { return e.Seen > e.Sequencer.Token }

// Error says which sequencer is stale, and why.
func (e *StaleError) Error() string {
	switch {
	case e.Superseded():
		return fmt.Sprintf("sequencer %v: %v: token %d has been seen", e.Sequencer, lease.ErrStale, e.Seen)
	case e.Seen == 0:
		return fmt.Sprintf("sequencer %v: %v: no owner holds the lease", e.Sequencer, lease.ErrStale)
	}
	return fmt.Sprintf("sequencer %v: %v: the store has given tokens up to %d", e.Sequencer, lease.ErrStale, e.Seen)
}

// Is reports whether target is lease.ErrStale or, if the name is free, lease.ErrNotHeld.
func (e *StaleError) Is(target error) bool {
	return target == lease.ErrStale || target == lease.ErrNotHeld && e.Seen == 0
}

// Check asks the store, once, whether the ownership stands. nil: at some moment during the call it
// did. An error that is lease.ErrStale, a *StaleError, is definite: it is over, or was never. One
// that is lease.ErrUnknown says that nothing is known: the store did not answer, or what stands is
// no record that this version reads (lease.ErrBadRecord). lease.ErrInvalid: ctx or r is nil, or s
// is not valid.
//
// The record stands for a little longer than its holder trusts it, so a holder that may not act any
// more can still be found here, but no two holders of a name.
func (s Sequencer) Check(ctx context.Context, r Reader) error {
	if err := input.Context(ctx, lease.ErrInvalid); err != nil {
		return fmt.Errorf("sequencer: %w", err)
	}
	if input.Nil(r) {
		return fmt.Errorf("sequencer: reader: %w: nil", lease.ErrInvalid)
	}
	if err := s.Validate(); err != nil {
		return err
	}
	var rec lease.Record
	err := boundary.Call(func() (err error) { rec, err = r.Get(ctx, s.Name); return err })
	if err == nil && (rec.Name != s.Name || rec.Token == 0) {
		err = fmt.Errorf("%w: a record of %q under token %d", lease.ErrInconsistent, rec.Name, rec.Token)
	}
	switch {
	case errors.Is(err, lease.ErrNotHeld):
		return &StaleError{Sequencer: s}
	case err != nil:
		return fmt.Errorf("sequencer %v: %w: %w", s, lease.ErrUnknown, err)
	case rec.Token != s.Token:
		return &StaleError{Sequencer: s, Seen: rec.Token}
	}
	return nil
}

type ownershipKey struct{}

// NewContext returns a context that bears o, under which what it is passed to works. nil: nothing
// is borne.
func NewContext(ctx context.Context, o lease.Ownership) context.Context {
	return context.WithValue(ctx, ownershipKey{}, o)
}

// FromContext returns what NewContext was given last; ok is false if that was nothing.
func FromContext(ctx context.Context) (o lease.Ownership, ok bool) {
	o, _ = ctx.Value(ownershipKey{}).(lease.Ownership)
	return o, !input.Nil(o)
}
