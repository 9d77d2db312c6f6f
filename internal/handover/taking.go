package handover

import (
	"errors"

	"github.com/holdfast-go/holdfast/internal/wire"
)

var (
	// ErrLate: a state came when its actor's next life had begun without it.
	ErrLate = errors.New("the state came too late: the next host had gone on without it")
	// ErrMissing: states did not come.
	ErrMissing = errors.New("states that were handed over did not come")
	// ErrNoWord: nothing came.
	ErrNoWord = errors.New("no word came from the old host: states, if there were any, are lost")
)

// Taking collects the states of one hand-over on the side of the next host. It is not
// safe for concurrent use.
type Taking struct {
	from   *wire.Node // the old host
	number uint64
	states *States
	of     uint32 // how many there are, by what came; 0: not known
	came   uint32
	word   bool
}

// Take begins to collect the states of hand-over number of a node.
func Take(b *Budget, from *wire.Node, number uint64) *Taking {
	return &Taking{from: from, number: number, states: NewStates(b)}
}

// Is reports whether a message is of this hand-over.
func (t *Taking) Is(from *wire.Node, number uint64) bool {
	return t != nil && t.number == number && t.from.Is(from)
}

// State takes one. An error says why it can't be, for the owner to report: ErrBudget, or
// ErrLate after Begin. One that came already is ignored.
func (t *Taking) State(m *wire.EntityState) error {
	if t.states.Has(m.Key) || t.word {
		return nil // of a peer that does not know the rules
	}
	t.of = max(t.of, m.States)
	t.came++
	if t.states == nil {
		return ErrLate
	}
	return t.states.Put(m.Key, m.State)
}

// Word takes the old host's word, and returns how many states did not come before it,
// and do not come any more: to be told.
func (t *Taking) Word(m *wire.HandedOver) (missing int) {
	if t.word {
		return 0
	}
	t.word, t.of = true, m.States
	return t.missing()
}

func (t *Taking) missing() int { return max(0, int(t.of)-int(t.came)) }

// Begin returns what came, as the host goes on with that. The Taking is of use for what
// comes late if it is not Complete.
func (t *Taking) Begin() *States {
	if t == nil {
		return nil
	}
	s := t.states
	t.states = nil
	return s
}

// Complete reports whether nothing is to come any more.
func (t *Taking) Complete() bool { return t.word }

// End gives up what did not come, and returns how many these are; known is false if
// nothing came by which that could be known.
func (t *Taking) End() (missing int, known bool) {
	if t.word {
		return 0, true
	}
	t.word = true
	return t.missing(), t.of > 0
}
