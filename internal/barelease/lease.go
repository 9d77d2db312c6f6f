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
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultclock"
)

// Lease is the right of one node to one name. Safe for concurrent use.
type Lease struct {
	node  *Node
	name  string
	ttl   time.Duration // of the record
	trust time.Duration // how much of it CheckAlive believes in, from before the request was sent

	until atomic.Int64  // CheckAlive is true until then, by the node's monotonic clock; 0: it is not
	turn  chan struct{} // one request at a time

	mu       sync.Mutex // guards what follows. No request is made under it, and no users' code runs
	own      uint64     // the present ownership; 0: there is none
	timer    store.Timer
	handlers []*func(lease.Loss)
}

// never is a moment before all others.
const never = math.MinInt64

var _ lease.Lease = (*Lease)(nil)

// Name returns the name, which package lease finds for its messages.
func (l *Lease) Name() string { return l.name }

// CheckAlive implements lease.Lease.
func (l *Lease) CheckAlive() bool { return int64(l.node.now()) < l.until.Load() }

// Acquire implements lease.Lease.
func (l *Lease) Acquire(ctx context.Context) (bool, error) {
	if err := l.begin(ctx); err != nil {
		return false, err
	}
	defer l.end()
	if l.CheckAlive() {
		return true, nil
	}
	l.drop(lease.ErrExpired) // one that ran out, and whose timer has not fired
	own, sent := l.node.book.number(), l.node.now()
	won, err := l.node.ask(ctx, func(b *Book) bool { return b.take(l.name, own, l.ttl) })
	switch {
	case err != nil: // it may land yet: what it wins is given back
		l.node.later(func(b *Book) { b.free(l.name, own) })
		return false, fmt.Errorf("lease %q: %w: %w", l.name, lease.ErrUnknown, err)
	case !won:
		return false, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own = own
	l.trustLocked(sent)
	return l.CheckAlive(), nil
}

// Release implements lease.Lease. What could not be released is given back later, or ends by
// itself.
func (l *Lease) Release(ctx context.Context) error {
	own := l.forget() // before anything is sent
	if err := l.begin(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	defer l.end()
	if own == 0 {
		if own = l.forget(); own == 0 { // of an Acquire that was under way
			return nil
		}
	}
	_, err := l.node.ask(ctx, func(b *Book) bool { return b.free(l.name, own) })
	if err != nil {
		l.node.later(func(b *Book) { b.free(l.name, own) })
		return fmt.Errorf("lease %q: %w: %w", l.name, lease.ErrUnknown, err)
	}
	return nil
}

// OnLost implements lease.Lease.
func (l *Lease) OnLost(f func(lease.Loss)) (stop func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &f
	l.handlers = append(l.handlers[:len(l.handlers):len(l.handlers)], h)
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		i := slices.Index(l.handlers, h)
		if i >= 0 {
			l.handlers = slices.Concat(l.handlers[:i], l.handlers[i+1:])
		}
		return i >= 0
	}
}

// trustLocked begins, or goes on with, an ownership that a request of that moment won or
// renewed.
func (l *Lease) trustLocked(sent time.Duration) {
	l.until.Store(int64(sent + l.trust))
	own := l.own
	l.timer = l.node.clock.AfterFunc(l.ttl/4, func() { l.renew(own) })
}

// renew renews an ownership, as long as it is the present one, or tells that it is lost.
func (l *Lease) renew(own uint64) {
	left := time.Duration(l.until.Load()) - l.node.now()
	if left <= 0 {
		l.drop(lease.ErrExpired)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer l.node.clock.AfterFunc(min(left, l.ttl/4), cancel).Stop()
	sent := l.node.now()
	ours, err := l.node.ask(ctx, func(b *Book) bool { return b.renew(l.name, own, l.ttl) })
	if err == nil && !ours {
		l.drop(lease.ErrTakenOver)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.own != own:
	case err != nil: // until it is over
		l.timer = l.node.clock.AfterFunc(min(left, l.ttl/20), func() { l.renew(own) })
	case l.CheckAlive(): // what came too late revives nothing
		l.trustLocked(sent)
	default:
		l.timer = l.node.clock.AfterFunc(0, func() { l.renew(own) })
	}
}

// drop ends the present ownership, if there is one, against its holder's will.
func (l *Lease) drop(reason error) {
	l.mu.Lock()
	handlers := l.handlers
	l.mu.Unlock()
	if l.forget() == 0 {
		return
	}
	for _, f := range handlers {
		go func() {
			if err := boundary.Contained(func() { (*f)(lease.Loss{Name: l.name, Reason: reason}) }); err != nil {
				boundary.Default().Error("a callback panicked", zap.String("lease", l.name), zap.Error(err))
			}
		}()
	}
}

// forget ends the present ownership, and returns it.
func (l *Lease) forget() (own uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, l.own = l.own, 0
	l.until.Store(never)
	if l.timer != nil {
		l.timer.Stop()
	}
	return own
}

func (l *Lease) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Lease) end() { <-l.turn }

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
