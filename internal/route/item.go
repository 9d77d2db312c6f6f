package route

import (
	"cmp"
	"slices"

	"github.com/holdfast-go/holdfast/internal/mutant"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// Item is one message on its way: exactly one of the fields is set.
type Item struct {
	// Local is a message of this node, or an *actor.MessageEnvelope.
	Local any
	// Wire came from another node and was not opened yet.
	Wire *wire.Envelope

	marker *wire.Marker
	kept   bool // accepted for others: forwarded as a relay
	first  bool // was on its way once, and came back
}

// older orders what waits. Of one sender's messages those that were routed by
// newer knowledge are the older: they came back from where the sender's later
// ones do not go any more. What an actor here had, or a node that is gone, is
// older still.
func older(a, b Item) int {
	switch {
	case a.first != b.first && a.first:
		return -1
	case a.first != b.first:
		return 1
	}
	return cmp.Compare(b.routed(), a.routed())
}

// routed is the token by which the last node routed it; 0 if it comes from here.
func (it Item) routed() lease.Token {
	if it.marker != nil {
		return lease.Token(it.marker.Token)
	}
	return lease.Token(it.Wire.GetToken())
}

func (it Item) hops() uint32 {
	if it.marker != nil {
		return it.marker.Hops
	}
	return it.Wire.GetHops()
}

// DropPolicy says what gives way when a buffer is full.
type DropPolicy uint8

const (
	// DropNewest refuses the message that finds the buffer full.
	DropNewest DropPolicy = iota
	// DropOldest makes room by dropping what has waited longest.
	DropOldest
)

// queue is a bounded buffer.
type queue struct {
	items  []Item
	limit  int
	policy DropPolicy
}

func (q *queue) full() bool { return len(q.items) >= q.limit && !mutant.On(mutant.UnboundedBuffer) }

// maxMarkers bounds how many nodes' markers wait.
const maxMarkers = 256

// push adds it, or says what was dropped for want of room. A marker needs no
// room, as its sender has one at a time; of too many senders' the oldest goes, and
// its sender waits in vain, for as long as it has patience.
func (q *queue) push(it Item) (out Item, dropped bool) {
	if it.marker != nil { // it makes the one before it void
		markers := 0
		q.items = slices.DeleteFunc(q.items, func(o Item) bool {
			if o.marker != nil {
				markers++
			}
			return o.marker != nil && o.marker.From.GetIncarnation() == it.marker.From.GetIncarnation()
		})
		if markers >= maxMarkers {
			i := slices.IndexFunc(q.items, func(o Item) bool { return o.marker != nil })
			q.items = slices.Delete(q.items, i, i+1)
		}
	}
	switch {
	case !q.full() || it.marker != nil:
	case q.policy == DropNewest:
		return it, true
	default:
		for i, old := range q.items {
			if old.marker == nil {
				out, dropped = old, true
				q.items = append(q.items[:i:i], q.items[i+1:]...)
				break
			}
		}
	}
	q.items = append(q.items, it)
	return out, dropped
}

// take empties the queue.
func (q *queue) take() []Item {
	items := q.items
	q.items = nil
	return items
}
