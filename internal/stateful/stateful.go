// Package stateful takes the state of an actor that ends, and gives it to the one
// that follows.
package stateful

import (
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/boundary"
)

// ErrNot: the actor is not hosting.Stateful.
var ErrNot = errors.New("the actor is not Stateful")

// Take returns what a has to hand over; nil if that is nothing. More than limit
// bytes, and a panic, are errors.
func Take(a actor.Actor, limit int) (state []byte, err error) {
	s, ok := a.(hosting.Stateful)
	if !ok {
		return nil, nil
	}
	err = boundary.Call(func() (err error) { state, err = s.HandOverState(); return err })
	if err != nil {
		return nil, fmt.Errorf("HandOverState: %w", err)
	}
	if len(state) > limit {
		return nil, fmt.Errorf("%d bytes, at most %d", len(state), limit)
	}
	return state, nil
}

// Give gives a the state of the one before. A panic is an error.
func Give(a actor.Actor, state []byte) error {
	s, ok := a.(hosting.Stateful)
	if !ok {
		return ErrNot
	}
	if err := boundary.Call(func() error { return s.RestoreState(state) }); err != nil {
		return fmt.Errorf("RestoreState: %w", err)
	}
	return nil
}
