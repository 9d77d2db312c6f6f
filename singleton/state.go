package singleton

import (
	"errors"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/stateful"
)

// Stateful is implemented by children whose state moves with a planned
// hand-over. Every failure, and every change of host that was not planned, is a
// cold start: a child that was given nothing.
type Stateful interface {
	actor.Actor
	// HandOverState returns what the next host's child is to begin with; nil for
	// nothing. It is called after Stopped, when nothing else of the child runs.
	HandOverState() ([]byte, error)
	// RestoreState is called before Started. On an error this child is ended
	// without having seen any message, and another is made that starts cold.
	RestoreState(state []byte) error
}

// baggage is the state of a child on its way out of this node or into it. It is
// written on the child's goroutine and read by the controller once the child has
// ended.
type baggage struct {
	limit int

	mu    sync.Mutex
	want  bool // the child that ends is to leave its state
	has   bool
	state []byte
	err   error
}

// pack asks the child that is about to end for its state.
func (b *baggage) pack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.want, b.has, b.state, b.err = b.limit > 0, false, nil, nil
}

// leave takes the state of a child that has ended.
func (b *baggage) leave(a actor.Actor) {
	b.mu.Lock()
	want := b.want
	b.mu.Unlock()
	if !want {
		return
	}
	state, err := stateful.Take(a, b.limit)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	if err == nil && state != nil {
		b.has, b.state = true, state
	}
}

// take empties the baggage.
func (b *baggage) take() (state []byte, has bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	state, has, err = b.state, b.has, b.err
	b.want, b.has, b.state, b.err = false, false, nil, nil
	return state, has, err
}

// failure says why a child that was to leave its state did not.
func (b *baggage) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

var errOfferGone = errors.New("who was to take over took its offer back")
