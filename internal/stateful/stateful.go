// Package stateful takes the state of an actor that ends, and gives it to the one
// that follows.
package stateful

import (
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
)

// Actor is implemented by actors whose state moves with a planned hand-over.
type Actor interface {
	actor.Actor
	HandOverState() ([]byte, error)
	RestoreState(state []byte) error
}

// ErrNot: the actor is no Actor.
var ErrNot = errors.New("the actor is not Stateful")

// Take returns what a has to hand over; nil if that is nothing. More than limit
// bytes, and a panic, are errors.
func Take(a actor.Actor, limit int) (state []byte, err error) {
	s, ok := a.(Actor)
	if !ok {
		return nil, nil
	}
	defer func() {
		if r := recover(); r != nil {
			state, err = nil, fmt.Errorf("HandOverState panicked: %v", r)
		}
	}()
	if state, err = s.HandOverState(); err != nil {
		return nil, err
	}
	if len(state) > limit {
		return nil, fmt.Errorf("%d bytes, at most %d (WithStateLimit)", len(state), limit)
	}
	return state, nil
}

// Give gives a the state of the one before. A panic is an error.
func Give(a actor.Actor, state []byte) (err error) {
	s, ok := a.(Actor)
	if !ok {
		return ErrNot
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("RestoreState panicked: %v", r)
		}
	}()
	return s.RestoreState(state)
}
