package singleton

import (
	"errors"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/handover"
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

// handoverState is the state of a child on its way out of this node or into it. It is
// written on the child's goroutine and by the controller.
type handoverState struct {
	limit  int
	budget *handover.Budget

	mu    sync.Mutex
	want  bool             // the child that ends is to leave its state
	left  *handover.States // what it left
	given *handover.States // what the next one is to begin with
	err   error
}

func newHandoverState(m *Manager) *handoverState {
	return &handoverState{limit: m.set.stateLimit, budget: &handover.Of(m.system).Left}
}

// sole is the key of a singleton's state.
const sole = ""

// pack asks the child that is about to end for its state.
func (b *handoverState) pack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.want, b.err = b.limit > 0, nil
}

// leave takes the state of a child that has ended.
func (b *handoverState) leave(a actor.Actor, lost bool) {
	b.mu.Lock()
	want := b.want
	b.mu.Unlock()
	if !want {
		return
	}
	var state []byte
	var err error
	if !lost {
		state, err = stateful.Take(a, b.limit)
	} else if _, ok := a.(Stateful); ok {
		err = errShutOff
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
	b.want, b.left, b.err = false, nil, nil
	return left
}

// bring keeps what was handed over for the next child.
func (b *handoverState) bring(s *handover.States) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.given = s
}

// brings reports whether there is a state for the next child.
func (b *handoverState) brings() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.given.Len() > 0
}

// unpack takes the state for the next child out.
func (b *handoverState) unpack() (state []byte, ok bool) {
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
	errOfferGone   = errors.New("who was to take over took its offer back")
	errNotRestored = errors.New("the lease went before the child had begun with it")
	errShutOff     = errors.New("the child was shut off before it could leave it")
)
