// Package barelease is a lease of the four methods of lease.Lease and no more, over a map. It
// passes leasetest.RunLease, and docs/own-lease.md explains it. For tests: the map is in the
// process.
//
//	Book ◀── ask ── Node (a clock, a link that can be cut) ◀── Lease
package barelease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultclock"
)

// Book is what all nodes share: who has which name, and until when.
type Book struct {
	mu      sync.Mutex
	last    uint64
	records map[string]record
}

type record struct {
	own   uint64
	until time.Time
}

// NewBook returns an empty one.
func NewBook() *Book { return &Book{records: map[string]record{}} }

// number returns one that no ownership has had.
func (b *Book) number() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	return b.last
}

func (b *Book) take(name string, own uint64, ttl time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r, ok := b.records[name]; ok && time.Now().Before(r.until) {
		return false
	}
	b.records[name] = record{own, time.Now().Add(ttl)}
	return true
}

func (b *Book) renew(name string, own uint64, ttl time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.records[name]
	if !ok || r.own != own || !time.Now().Before(r.until) {
		return false
	}
	b.records[name] = record{own, time.Now().Add(ttl)}
	return true
}

func (b *Book) free(name string, own uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.records[name].own != own {
		return false
	}
	delete(b.records, name)
	return true
}

// Node is a participant, with a clock of its own and a link to the Book.
type Node struct {
	book  *Book
	clock store.Clock

	mu     sync.Mutex
	healed chan struct{}   // closed by Heal; nil: the link is whole
	owed   []func(b *Book) // when it is again
}

// NewNode returns one. A nil clock is the system's.
func NewNode(b *Book, clock store.Clock) *Node {
	if clock == nil {
		clock = store.SystemClock()
	}
	return &Node{book: b, clock: clock}
}

// Lease returns a lease that is not held. An error is lease.ErrInvalid: the name is none, or
// the TTL is below a millisecond.
func (n *Node) Lease(name string, ttl time.Duration) (*Lease, error) {
	if err := store.ValidateName(name); err != nil {
		return nil, err
	}
	if ttl < time.Millisecond {
		return nil, fmt.Errorf("barelease: TTL: %w: %v, must be at least 1ms", lease.ErrInvalid, ttl)
	}
	l := &Lease{node: n, name: name, ttl: ttl, trust: ttl - ttl/10, turn: make(chan struct{}, 1)}
	l.until.Store(never)
	return l, nil
}

func (n *Node) now() time.Duration { return n.clock.Now().Mono }

// Cut lets no request pass until Heal.
func (n *Node) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.healed == nil {
		n.healed = make(chan struct{})
	}
}

// Heal ends Cut.
func (n *Node) Heal() {
	n.mu.Lock()
	healed, owed := n.healed, n.owed
	n.healed, n.owed = nil, nil
	n.mu.Unlock()
	if healed != nil {
		close(healed)
	}
	for _, f := range owed {
		f(n.book)
	}
}

// link returns what is closed when the link is whole again; nil: it is.
func (n *Node) link() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.healed
}

var errNoAnswer = errors.New("no answer")

// ask makes a request. An error means that nothing is known.
func (n *Node) ask(ctx context.Context, f func(*Book) bool) (bool, error) {
	for {
		if err := ctx.Err(); err != nil {
			return false, fmt.Errorf("%w: %w", errNoAnswer, err)
		}
		healed := n.link()
		if healed == nil {
			return f(n.book), nil
		}
		select {
		case <-healed:
		case <-ctx.Done():
		}
	}
}

// later makes a request as soon as there is a link.
func (n *Node) later(f func(*Book)) {
	n.mu.Lock()
	if n.healed != nil {
		n.owed = append(n.owed, f)
		n.mu.Unlock()
		return
	}
	n.mu.Unlock()
	f(n.book)
}

// World is what leasetest.RunLease asks for: it converts to a leasetest.Bare.
type World struct {
	TTL   time.Duration
	Lease func() lease.Lease
	Cut   func(l lease.Lease, on bool)
	Crash func(l lease.Lease)
	Pause func(l lease.Lease, d time.Duration, waking func())
}

// NewWorld makes one of leases with a flaw; "": without. cleanup gets what ends it.
func NewWorld(cleanup func(func()), ttl time.Duration, flaw Flaw) World {
	type place struct {
		*Node
		clock *faultclock.Clock
	}
	book, of := NewBook(), map[lease.Lease]place{}
	return World{
		TTL: ttl,
		Lease: func() (l lease.Lease) {
			clock := faultclock.New()
			n := NewNode(book, clock)
			plain, _ := n.Lease("job", ttl) // a valid name
			if l = plain; flaw != "" {
				l = With(plain, flaw)
			}
			of[l] = place{n, clock}
			return l
		},
		Cut: func(l lease.Lease, on bool) {
			if on {
				of[l].Cut()
			} else {
				of[l].Heal()
			}
		},
		Crash: func(l lease.Lease) {
			of[l].clock.Freeze()
			of[l].Cut()
			cleanup(of[l].Heal) // a request that was under way would wait for ever
		},
		Pause: func(l lease.Lease, d time.Duration, waking func()) {
			of[l].clock.Freeze()
			time.Sleep(d)
			waking()
			of[l].clock.Thaw()
		},
	}
}
