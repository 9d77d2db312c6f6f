package sharding

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// Transition is something that happened to a shard on this node, or to its coordinator
// (Shard -1).
type Transition struct {
	Shard  int
	What   EventKind
	Token  lease.Token `json:",omitempty"`
	To     string      `json:",omitempty"` // HandedOff: the id of the next host
	Took   time.Duration
	Reason string `json:",omitempty"`
	At     time.Time
}

// recentMoves is how many moves a node remembers.
const recentMoves = 256

// moves are the last of a node.
type moves struct {
	mu   sync.Mutex
	ring []Transition
	next int
}

func (m *moves) add(x Transition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.ring) < recentMoves {
		m.ring = append(m.ring, x)
		return
	}
	m.ring[m.next] = x
	m.next = (m.next + 1) % recentMoves
}

func (m *moves) all() []Transition {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append(append([]Transition(nil), m.ring[m.next:]...), m.ring[:m.next]...)
}
