package singleton

import (
	"errors"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/stateful"
)

// handoverState is the state of a child on its way out of this node or into it. It is
// written on the child's goroutine and by the controller.
type handoverState struct {
	budget *handover.Budget

	mu    sync.Mutex
	want  bool             // the child that ends is to leave its state
	alone bool             // it is to end, and no node is there to leave its state to
	left  *handover.States // what it left
	given *handover.States // what the next one is to begin with
	err   error
}

// maxState bounds the state that a child hands over, in bytes. One that is larger than a message
// between nodes may be is found when it is sent.
const maxState = 1 << 20

// sole is the key of a singleton's state.
const sole = ""

// ask asks the child that is about to end for its state.
func (b *handoverState) ask() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.want, b.err = true, nil
}

// forgo says that no node takes over from the child that is about to end.
func (b *handoverState) forgo() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alone, b.err = true, nil
}

// leave takes the state of a child that has ended.
func (b *handoverState) leave(a actor.Actor, lost bool) {
	b.mu.Lock()
	want, alone := b.want, b.alone
	b.mu.Unlock()
	if !want && !alone {
		return
	}
	var state []byte
	var err error
	if want && !lost {
		state, err = stateful.Take(a, maxState)
	} else if _, ok := a.(hosting.Stateful); ok {
		if err = errNoSuccessor; want {
			err = errShutOff
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil && state != nil {
		b.left = handover.NewStates(b.budget)
		err = b.left.Put(sole, state)
	}
	b.err = err
}

// take empties what was left.
func (b *handoverState) take() *handover.States {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.left
	b.want, b.alone, b.left, b.err = false, false, nil, nil
	return left
}

// give keeps what was handed over for the next child.
func (b *handoverState) give(s *handover.States) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.given = s
}

// hasGiven reports whether there is a state for the next child.
func (b *handoverState) hasGiven() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.given.Len() > 0
}

// takeGiven takes the state for the next child out.
func (b *handoverState) takeGiven() (state []byte, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.given.Take(sole)
}

// passOn leaves a state that the child was not given.
func (b *handoverState) passOn() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.given.Len() == 0 {
		return nil
	}
	if b.left == nil {
		b.left = handover.NewStates(b.budget)
	}
	if lost := b.left.Absorb(b.given); len(lost) > 0 {
		return handover.ErrBudget
	}
	return nil
}

// failure says why a child that was to leave its state did not.
func (b *handoverState) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

var (
	errOfferGone   = errors.New("the successor took its offer back")
	errNotRestored = errors.New("the lease went before the child had begun with it")
	errNoSuccessor = errors.New("no node takes over, so it was not asked for its state")
	errShutOff     = errors.New("the child was shut off before it could leave it")
)
