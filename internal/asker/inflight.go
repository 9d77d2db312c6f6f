package asker

import (
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// InFlight is the Questions for one name that went to other nodes and have not ended.
// The zero value has none. Safe for concurrent use; it never blocks.
type InFlight struct {
	mu    sync.Mutex
	first *Question
}

// sentTo is where a Question went last; guarded by the mu of its InFlight.
type sentTo struct {
	to         string // the address of the node; empty: it is in no InFlight
	link       uint64 // of the channel to that
	next, prev *Question
}

// Sender is a PID, as actors or as messages between nodes have it.
type Sender interface {
	GetAddress() string
	GetId() string
}

// of returns the Question that sender stands for, if u notes where that goes.
func (u *InFlight) of(system *actor.ActorSystem, sender Sender) *Question {
	a, _ := wire.AskerOf(system, sender.GetAddress(), sender.GetId())
	if q, ok := a.(*Question); ok && q.of.Load() == u {
		return q
	}
	return nil
}

// Expect has u note where the Question goes that sender stands for. The sender
// calls it before it sends.
func (u *InFlight) Expect(system *actor.ActorSystem, sender Sender) {
	a, _ := wire.AskerOf(system, sender.GetAddress(), sender.GetId())
	if q, ok := a.(*Question); ok {
		q.of.CompareAndSwap(nil, u)
	}
}

// Went notes that what sender asked was sent to the node at the address to, on that link
// of the channel to it. Other senders' messages are of no account.
func (u *InFlight) Went(system *actor.ActorSystem, sender Sender, to string, link uint64) {
	q := u.of(system, sender)
	if q == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if q.over.Load() {
		return // drop was called, or will be
	}
	if q.to == "" {
		if q.next = u.first; q.next != nil {
			q.next.prev = q
		}
		u.first = q
	}
	q.to, q.link = to, link
}

// Came notes that what sender asked has come back to this node: no link matters to it.
func (u *InFlight) Came(system *actor.ActorSystem, sender Sender) {
	if q := u.of(system, sender); q != nil {
		u.drop(q)
	}
}

// patience is for how long what may have been forwarded is waited for: after that no node
// keeps it for another that does not take it.
const patience = time.Minute

// Broke answers, with Unconfirmed, what was sent to the node at address on a link before
// the present one: at once, or where moved says that it may have been forwarded by then, a
// minute later, if it has not ended, come back or gone elsewhere.
func (u *InFlight) Broke(clock lease.Clock, address string, present uint64, moved bool) {
	switch {
	case !moved:
		u.fail(address, present)
	case u.any(address, present):
		clock.AfterFunc(patience, func() { u.fail(address, present) })
	}
}

// wentBefore reports whether it was sent last to that address, on a link before the present one.
func (s *sentTo) wentBefore(address string, present uint64) bool {
	return s.to == address && s.link < present
}

func (u *InFlight) any(address string, present uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for q := u.first; q != nil; q = q.next {
		if q.wentBefore(address, present) {
			return true
		}
	}
	return false
}

func (u *InFlight) fail(address string, present uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for q := u.first; q != nil; {
		next := q.next
		if q.wentBefore(address, present) {
			u.dropLocked(q)
			q.take(Unconfirmed{})
		}
		q = next
	}
}

func (u *InFlight) drop(q *Question) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.dropLocked(q)
}

func (u *InFlight) dropLocked(q *Question) {
	switch {
	case q.to == "":
		return
	case q.prev == nil:
		u.first = q.next
	default:
		q.prev.next = q.next
	}
	if q.next != nil {
		q.next.prev = q.prev
	}
	q.sentTo = sentTo{}
}
