package asker

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// UnderWay is the Questions for one name that went to other nodes and have not ended.
// The zero value has none. Safe for concurrent use; it never blocks.
type UnderWay struct {
	mu    sync.Mutex
	first *Question
}

// way is where a Question went last; guarded by the mu of its UnderWay.
type way struct {
	to         string // the address of the node; empty: it is in no UnderWay
	link       uint64 // of the channel to that
	next, prev *Question
}

// Sender is a PID, as actors or as messages between nodes have it.
type Sender interface {
	GetAddress() string
	GetId() string
}

// of returns the Question that sender stands for, if u notes where that goes.
func (u *UnderWay) of(system *actor.ActorSystem, sender Sender) *Question {
	a, _ := wire.AskerOf(system, sender.GetAddress(), sender.GetId())
	if q, ok := a.(*Question); ok && q.of.Load() == u {
		return q
	}
	return nil
}

// Expect has u note where the Question goes that sender stands for. It is called by who
// sends that, before it does.
func (u *UnderWay) Expect(system *actor.ActorSystem, sender Sender) {
	a, _ := wire.AskerOf(system, sender.GetAddress(), sender.GetId())
	if q, ok := a.(*Question); ok {
		q.of.CompareAndSwap(nil, u)
	}
}

// Went notes that what sender asked was sent to the node at the address to, on that link
// of the channel to it. Other senders' messages are of no account.
func (u *UnderWay) Went(system *actor.ActorSystem, sender Sender, to string, link uint64) {
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
func (u *UnderWay) Came(system *actor.ActorSystem, sender Sender) {
	if q := u.of(system, sender); q != nil {
		u.drop(q)
	}
}

// Broke answers, with Unconfirmed, what was sent to the node at address on a link before
// the present one.
func (u *UnderWay) Broke(address string, present uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for q := u.first; q != nil; {
		next := q.next
		if q.to == address && q.link < present {
			u.dropLocked(q)
			q.take(Unconfirmed{})
		}
		q = next
	}
}

func (u *UnderWay) drop(q *Question) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.dropLocked(q)
}

func (u *UnderWay) dropLocked(q *Question) {
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
	q.way = way{}
}
