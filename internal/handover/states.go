package handover

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// If an actor's next life gets no state, one node reports the cold start, once:
//
//	the state …                                     reported by
//	was too large, or a Budget had no room          the node that had no room
//	was left when the hand-over was called off      the old host
//	came, and could not be used                     the next host
//	came after the next host went on                the next host, as late
//	did not come, and HandedOver did                the next host, by the count
//	did not come, nor did HandedOver, and …
//	  the next host is gone                         the old host: all of the hand-over
//	  the next host lives and took a state          the next host, by that one's count, after LateFor
//	  the next host lives and took none             the old host: all
//
// If the old host dies before any state came, the number of states is not known: the next host
// reports once, without a number. If a link ends for good and acknowledgements are lost with it,
// both nodes may report a state.

// Most bounds the states in each of a node's two Budgets, in bytes.
const Most = 64 << 20

// overhead is what a state takes besides its bytes and its key.
const overhead = 128

// ErrBudget: the node holds as many states on their way as it may.
var ErrBudget = errors.New("too many states are on their way")

// Budgets bound the states that one actor system holds outside of actors.
type Budgets struct {
	Left  Budget // left by actors, until the next host has taken them
	Taken Budget // taken from other nodes, until actors are given them
}

var extensionID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*Budgets) ExtensionID() extensions.ExtensionID { return extensionID }

// Of returns the Budgets of a system.
func Of(system *actor.ActorSystem) *Budgets {
	return actors.Extension(system, extensionID, func() *Budgets {
		b := &Budgets{}
		b.Left.Bound(Most)
		b.Taken.Bound(Most)
		return b
	})
}

// Budget bounds states in bytes. It is safe for concurrent use.
type Budget struct{ used, most atomic.Int64 }

// Bound sets the bound.
func (b *Budget) Bound(bytes int64) { b.most.Store(bytes) }

// Used returns what is taken of it.
func (b *Budget) Used() int64 { return b.used.Load() }

func (b *Budget) take(n int) error {
	if most := b.most.Load(); b.used.Add(int64(n)) > most {
		b.give(n)
		return fmt.Errorf("%w: at most %d bytes", ErrBudget, most)
	}
	return nil
}

func (b *Budget) give(n int) { b.used.Add(-int64(n)) }

// States are states by the keys of their actors, within a Budget. They belong to one
// owner at a time. A nil *States is empty.
type States struct {
	budget *Budget
	m      map[string][]byte
}

// NewStates returns States that have none.
func NewStates(b *Budget) *States { return &States{budget: b, m: map[string][]byte{}} }

func cost(key string, state []byte) int { return len(key) + len(state) + overhead }

// Put adds a state, in place of that with the key; ErrBudget if there is no room.
func (s *States) Put(key string, state []byte) error {
	s.Take(key)
	if err := s.budget.take(cost(key, state)); err != nil {
		return err
	}
	s.m[key] = state
	return nil
}

// Get returns the state with the key, if there is one, which stays.
func (s *States) Get(key string) (state []byte, ok bool) {
	if s != nil {
		state, ok = s.m[key]
	}
	return state, ok
}

// Has reports whether there is a state with the key.
func (s *States) Has(key string) bool { _, ok := s.Get(key); return ok }

// Len counts them.
func (s *States) Len() int {
	if s == nil {
		return 0
	}
	return len(s.m)
}

// Keys lists their keys, in no order.
func (s *States) Keys() []string {
	if s == nil {
		return nil
	}
	keys := make([]string, 0, len(s.m))
	for k := range s.m {
		keys = append(keys, k)
	}
	return keys
}

// Take takes a state out.
func (s *States) Take(key string) (state []byte, ok bool) {
	if state, ok = s.Get(key); ok {
		delete(s.m, key)
		s.budget.give(cost(key, state))
	}
	return state, ok
}

// Drop takes all out, and returns their keys.
func (s *States) Drop() []string {
	keys := s.Keys()
	for _, k := range keys {
		s.Take(k)
	}
	return keys
}

// Absorb takes over those of t whose keys s has not: they are of actors that were not
// given them. It returns the keys that there was no room for.
func (s *States) Absorb(t *States) (lost []string) {
	for _, k := range t.Keys() {
		if state, _ := t.Take(k); !s.Has(k) && s.Put(k, state) != nil {
			lost = append(lost, k)
		}
	}
	return lost
}

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
