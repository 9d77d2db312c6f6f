package handover

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/store"
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
	return slices.Collect(maps.Keys(s.m))
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

// HandOver returns what an actor that has ended has to hand over; nil if that is nothing. More than
// limit bytes, and a panic, are errors.
func HandOver(a actor.Actor, limit int) (state []byte, err error) {
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

// Restore gives a new actor the state of the one before. cold hears why it was not taken, as the actor
// panicked, say. After an error the actor is to end, and the next one starts cold; one that is not
// Stateful can start as it is.
func Restore(a actor.Actor, state []byte, cold func(why error)) error {
	s, ok := a.(hosting.Stateful)
	if !ok {
		cold(errNotStateful)
		return nil
	}
	err := boundary.Call(func() error { return s.RestoreState(state) })
	if err != nil {
		err = fmt.Errorf("RestoreState: %w", err)
		cold(err)
	}
	return err
}

var errNotStateful = errors.New("the actor is not Stateful")

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

var (
	// ErrTooLarge: a state does not fit in a message between nodes.
	ErrTooLarge = errors.New("the state is larger than a message between nodes may be")
	// ErrNotReached: the next host did not get it.
	ErrNotReached = errors.New("the next host was not reached with the state")
)

// unsentFor is how long after the next host has gone on its old host tries to tell it
// how many states there were.
const unsentFor = time.Minute

// Config says what is handed over, and to whom.
type Config struct {
	System *actor.ActorSystem
	Clock  store.Clock
	Actor  string // that takes it on the next host
	Limit  int    // of one message, in bytes
	Name   string
	Number uint64
	Nonce  uint64
	From   *wire.Node
	To     *wire.Node
	Within time.Duration // the offer's lifetime: afterwards the next host goes on without what has not come
	Trace  string        // of the transfer

	// Sole: there is one state at most, and a next host that goes on without word
	// tells of it.
	Sole bool
	// Holds reports whether the next host holds the name, as far as is known.
	Holds func() bool
	// Cold hears of each state that no actor gets, and that no other node tells of.
	Cold func(key string, why error)
	// Done is called once, when all was sent, and all was taken or
	// came back.
	Done func(*Sending)
}

// item is one state on its way.
type item struct {
	key   string
	state []byte
	back  bool // it was not taken
	freed bool
}

// Sending is one hand-over on the side of the old host. It is safe for concurrent use,
// and calls the Config's functions under no lock.
type Sending struct {
	Config
	budget *Budget

	mu      sync.Mutex
	out     transport.Outbox
	peer    *transport.Peer
	lost    atomic.Int64
	total   int // states that this node announces
	unsent  []*item
	sent    []*item
	backs   int // of sent
	at      int // how far in sent it is known what was taken
	acked   int // of those before
	said    bool
	life    string // of the next host's system
	done    bool   // no more is sent
	missed  int    // what the next host will not have, the word included
	told    bool
	pumping bool
	again   bool
	timer   store.Timer
}

// Send hands states over, which are empty afterwards, and says how many they were.
func Send(c Config, states *States) *Sending {
	s := &Sending{Config: c, budget: &Of(c.System).Left}
	s.out.Init(transport.Of(c.System), s, c.Actor, c.Limit, &s.lost)
	s.peer = s.out.Channel(c.To.Address)
	keys := states.Keys()
	slices.Sort(keys)
	var large []string
	for _, k := range keys {
		if m := s.message(k, states.m[k]); proto.Size(m)+len(c.Actor)+2*overhead > c.Limit {
			large = append(large, k)
			states.Take(k)
			continue
		}
		s.unsent = append(s.unsent, &item{key: k, state: states.m[k]})
		delete(states.m, k) // what it takes of the Budget is the item's now
	}
	s.total = len(s.unsent)
	s.mu.Lock()
	s.timer = c.Clock.AfterFunc(c.Within, s.late)
	s.mu.Unlock()
	for _, k := range large {
		c.Cold(k, fmt.Errorf("%w: %d bytes", ErrTooLarge, c.Limit))
	}
	s.pump()
	return s
}

func (s *Sending) message(key string, state []byte) *wire.EntityState {
	return &wire.EntityState{Name: s.Name, From: s.From, Number: s.Number, Key: key, State: state, States: uint32(s.total)}
}

// Left counts what the next host has not taken yet.
func (s *Sending) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left()
}

// Missed counts what was given up: what the next host will not take any more.
func (s *Sending) Missed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.missed
}

func (s *Sending) left() int {
	if s.done {
		return 0
	}
	n := len(s.unsent) + int(s.Held().Load())
	if !s.said {
		n++
	}
	return n
}

// pump sends what there is room for, and notices what was taken.
func (s *Sending) pump() {
	s.mu.Lock()
	if s.pumping {
		s.again = true // who pumps comes to it
		s.mu.Unlock()
		return
	}
	s.pumping = true
	for {
		s.again = false
		s.freeTaken()
		for !s.done && !s.said && s.out.Room(s.To.Address) {
			s.next()
		}
		touched := s.out.Touched()
		s.mu.Unlock()
		for _, p := range touched {
			p.Flush()
		}
		s.mu.Lock()
		if !s.again {
			break
		}
	}
	s.pumping = false
	told := s.said && s.Held().Load() == 0 && s.end()
	s.mu.Unlock()
	if told {
		s.Done(s)
	}
}

// next queues one state, or the word.
func (s *Sending) next() {
	if len(s.unsent) == 0 {
		s.said = true
		s.out.Keep(s.To.Address, s, &wire.HandedOver{Name: s.Name, From: s.From, Number: s.Number, Nonce: s.Nonce, States: uint32(s.total), Trace: s.Trace})
		return
	}
	it := s.unsent[0]
	s.unsent[0] = nil
	s.unsent = s.unsent[1:]
	if !s.out.Keep(s.To.Address, it, s.message(it.key, it.state)) {
		it.back = true // the next host misses it
		s.backs++
		s.missed++
		s.free(it)
	}
	s.sent = append(s.sent, it)
}

// freeTaken gives back what the next host has custody of. Frames of one owner are taken in
// order.
func (s *Sending) freeTaken() {
	for n := s.taken(); s.acked < n && s.at < len(s.sent); s.at++ {
		if it := s.sent[s.at]; !it.back {
			s.acked++
			s.free(it)
		}
	}
}

// taken counts the states that were acknowledged.
func (s *Sending) taken() int {
	held := int(s.Held().Load())
	if s.said && held > 0 {
		held-- // the word is the last
	}
	return max(0, len(s.sent)-s.backs-held)
}

func (s *Sending) free(it *item) {
	if !it.freed {
		it.freed = true
		s.budget.give(cost(it.key, it.state))
		it.state = nil
	}
}

// end is the end of it; true once.
func (s *Sending) end() bool {
	if s.done {
		return false
	}
	s.missed += s.left()
	s.done = true
	if s.timer != nil {
		s.timer.Stop()
	}
	for _, it := range s.unsent {
		s.free(it)
	}
	for _, it := range s.sent {
		s.free(it)
	}
	return true
}

// Linked implements transport.Owner.
func (s *Sending) Linked(string) {
	life, _ := s.peer.State()
	s.mu.Lock()
	gone := !s.done && s.life != "" && life != s.life
	s.life = life
	s.mu.Unlock()
	if gone {
		s.abandon(true, false)
		return
	}
	s.pump()
}

// Returned implements transport.Owner.
func (s *Sending) Returned(_ string, items []any) {
	life, up := s.peer.State()
	s.mu.Lock()
	word := false
	if !s.done {
		s.missed += len(items)
	}
	for _, x := range items {
		if it, ok := x.(*item); ok {
			it.back = true
			s.backs++
			s.free(it)
		} else {
			word = true
		}
	}
	// Frames come back while the link is up because another life has answered.
	gone := up || s.life != "" && life != s.life
	counted := s.said && !word && !gone
	s.mu.Unlock()
	if counted {
		s.pump() // the word that is still under way says how many there are
		return
	}
	s.abandon(gone, false)
}

// Held implements transport.Owner.
func (s *Sending) Held() *atomic.Int64 { return s.out.Held() }

// late: the next host does not wait any more. This node tells it how many there were.
func (s *Sending) late() {
	s.mu.Lock()
	if s.done {
		s.mu.Unlock()
		return
	}
	for _, it := range s.unsent {
		s.free(it)
		it.back = true
	}
	s.missed += len(s.unsent)
	s.sent, s.backs = append(s.sent, s.unsent...), s.backs+len(s.unsent)
	s.unsent = nil
	if !s.said {
		s.timer = s.Clock.AfterFunc(unsentFor, func() { s.abandon(false, false) })
	}
	s.mu.Unlock()
	s.pump()
}

// Leave gives up what was not sent: this node's part in the name has ended. What is
// under way goes on.
func (s *Sending) Leave() {
	_, up := s.peer.State()
	s.mu.Lock()
	said := s.said
	s.mu.Unlock()
	if !said {
		s.abandon(false, up)
		return
	}
	s.out.Leave()
}

// abandon ends what can't be brought to its end, and tells of what no other node tells
// of. gone: the next host's life has ended; live: what was sent is on its way to it.
func (s *Sending) abandon(gone, live bool) {
	gone = gone || !s.Holds()
	s.mu.Lock()
	known := s.Sole || s.taken() > 0 || live && len(s.sent) > s.backs
	var all []*item
	if tell := (gone || !known) && !s.told; tell {
		s.told = true
		all = append(slices.Clone(s.sent), s.unsent...)
	}
	first := s.end()
	s.mu.Unlock()
	for _, it := range all {
		s.Cold(it.key, ErrNotReached)
	}
	if first {
		s.out.Leave() // else the channel goes on looking for the node
		s.Done(s)
	}
}
