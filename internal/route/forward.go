package route

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// This file is what becomes of a message: delivered, forwarded, or put where it waits.

// accept routes one item behind those that wait for the same, or drops what there is
// no room for.
func (r *Router) accept(it *Item) {
	switch {
	case it.Wire != nil && it.Wire.Name != r.Name:
		r.port.Refuse(it, wire.Reason_REASON_NO_HOLDER, "addressed to another name")
		return
	case it.marker != nil && it.marker.Name != r.Name:
		return
	case it.marker != nil && it.marker.From.GetIncarnation() == r.Self.Incarnation:
		if r.markerBack(it.marker) {
			r.flush()
		}
		return
	case it.hops() > maxHops:
		if it.marker == nil {
			r.port.Refuse(it, wire.Reason_REASON_TOO_MANY_HOPS, "")
		}
		return
	}
	if t, ok := r.target(); ok && (r.queue.empty() || r.fresh(t, it)) {
		if r.reroute(); r.send(it) {
			return
		}
	}
	if r.push(it, r.pending != nil) {
		r.flush() // what waits may be waiting for tokens yet to come alone
	}
}

// flush finds the way again and sends what waits and can go, in order, after
// anything changed. What was routed by a token yet to come is passed over: other mail that its
// sender has under way went by way of others, and comes later.
func (r *Router) flush() {
	r.seekLater()
	if r.phase == ending {
		return
	}
	r.reroute()
	t, ok := r.target()
	moved, blocked := 0, !ok
	for i := 0; i < len(r.queue.lanes); i++ {
		for {
			it := r.queue.head(i)
			if it == nil || r.Ahead(it.routed()) || blocked && !(ok && r.fresh(t, it)) {
				break
			}
			l := &r.queue.lanes[i]
			if it.marker == nil {
				r.queue.account(l, it, -1) // the port counts what it holds
			}
			if !r.send(it) {
				if it.marker == nil {
					r.queue.account(l, it, 1)
				}
				blocked = true
				break
			}
			l.shift()
			if it.marker != nil {
				r.queue.account(l, it, -1)
			}
			moved++
		}
	}
	r.queue.tidy()
	if moved > 0 {
		r.progress()
	}
}

// progress tells who wait for their markers that these get on.
func (r *Router) progress() {
	now := r.port.Now()
	if len(r.queue.markers) == 0 || now < r.noted+r.Patience/4 {
		return
	}
	r.noted = now
	for _, it := range r.queue.markers {
		r.port.Send(it.marker.From.GetAddress(), &wire.MarkerWaits{Name: r.Name, From: r.Self, Number: it.marker.Number})
	}
}

// send delivers or forwards it; false if it has to wait.
func (r *Router) send(it *Item) bool {
	t, ok := r.target()
	switch {
	case !ok || r.Ahead(it.routed()):
		return false
	case it.Until > 0 && r.port.Now() >= it.Until:
		r.port.Refuse(it, wire.Reason_REASON_EXPIRED, gaveUp)
		return true
	case r.fresh(t, it):
		r.deliver(it) // no path switch is pending for it
		return true
	case !r.path.is(t):
		return false // a path switch is under way
	case t.here:
		r.deliver(it)
		return true
	case !r.port.Room(t.node.Address):
		return false
	case (it.kept || r.doubted) && !r.path.confirmed && !r.pushing:
		r.ask(t)
		return false
	}
	r.forward(t, it)
	return true
}

func (r *Router) deliver(it *Item) {
	if it.marker == nil {
		r.port.Deliver(it)
		return
	}
	r.ack(it.marker)
}

// forward sends it to the Router of t.
func (r *Router) forward(t hop, it *Item) {
	var msg proto.Message
	switch {
	case it.marker != nil:
		m := proto.CloneOf(it.marker)
		m.Token, m.Hops = uint64(t.token), m.Hops+1
		msg = m
	case it.Wire != nil:
		e := &wire.Envelope{}
		proto.Merge(e, it.Wire)
		e.Token, e.Hops, e.Left = uint64(t.token), e.Hops+1, r.remaining(it)
		msg = e
	default:
		e, err := r.port.Encode(it.Local)
		if err != nil {
			r.port.Refuse(it, wire.ReasonOf(err), wire.Why(err, r.Self.Address))
			return
		}
		e.Name, e.Token, e.Left = r.Name, uint64(t.token), r.remaining(it)
		msg = e
	}
	r.Went()
	if !it.kept {
		r.port.Send(t.node.Address, msg)
		return
	}
	if !r.port.Keep(t.node.Address, it, msg) {
		r.port.Refuse(it, wire.Reason_REASON_TOO_LARGE, "with its headers and addresses it is larger than a message may be")
		return
	}
	r.stats.Relayed++
}

// remaining is for how many milliseconds the asker goes on waiting.
func (r *Router) remaining(it *Item) uint64 {
	if it.Until == 0 {
		return 0
	}
	return uint64(max(1, (it.Until-r.port.Now())/time.Millisecond))
}
