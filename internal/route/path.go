package route

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// hop is where mail goes: to the actor here, or to the Router of a node.
type hop struct {
	here  bool
	node  *wire.Node
	token lease.Token
}

func (h hop) is(o hop) bool {
	return h.here == o.here && h.token == o.token && (h.here || h.node.GetIncarnation() == o.node.GetIncarnation())
}

// path is the way mail went last.
type path struct {
	hop
	used      bool // something went there that is not known to have been taken up
	dead      bool // the link broke since: what went straight is lost
	confirmed bool // the holder there has said that it is open
}

// pathSwitch is the wait for the answer to a marker: between an old way and a new one;
// or, to ask, for word that the holder is open.
type pathSwitch struct {
	number uint64
	via    hop
	until  time.Duration
	ask    bool
	pause  time.Duration // ask: before the next reminder
}

// target is where mail has to go; false if no host is known.
func (r *Router) target() (hop, bool) {
	switch {
	case r.phase == ending:
		return hop{}, false
	case r.phase == open:
		return hop{here: true, token: r.own}, true
	case r.remote():
		return r.host, true
	}
	return hop{}, false
}

// mine reports whether h is an ownership of this node.
func (r *Router) mine(h hop) bool { return h.node.GetIncarnation() == r.Self.Incarnation }

// remote reports whether another node is known to hold the name.
func (r *Router) remote() bool {
	n := r.host.node
	return r.known && n.GetAddress() != "" && n.Address != r.Self.Address && !r.mine(r.host) && r.host.token > r.own
}

// fresh reports whether it was routed to the actor here by its present ownership. A
// transferred name that was adopted has two tokens, and mail that was routed by
// the first is right, too.
func (r *Router) fresh(t hop, it *Item) bool {
	return t.here && it.routed() > r.floor && it.routed() <= t.token
}

// ahead reports whether it was routed by newer knowledge than this node has.
func (r *Router) ahead(it *Item) bool { return r.aheadOf(it.routed()) }

func (r *Router) aheadOf(routed lease.Token) bool {
	switch t, ok := r.target(); {
	case !ok:
		return routed > max(r.own, r.host.token)
	case t.here:
		return routed > t.token
	default:
		return routed >= t.token
	}
}

// reroute makes the path that of the target, once nothing of ours is under way
// on another. If something may be, it begins a path switch.
func (r *Router) reroute() {
	t, ok := r.target()
	p := r.path
	switch {
	case !ok || p.is(t) || r.pending != nil && !r.pending.ask:
	case p.used && !p.here && !p.dead && r.maySwitch():
		r.beginSwitch(p.hop)
	default:
		if p.used && !p.here && !p.dead {
			r.stats.Unordered++
		}
		if p.used && p.dead {
			r.reclaim(r.port.Recall(p.node.GetAddress())) // the lease has moved on from a node that can't be reached
		}
		r.pending = nil
		r.path = path{hop: t}
	}
}

// maxSwitches bounds the path switches that are begun within Patience: a belt, so that
// nodes which disagree on who holds the name don't send each other markers at the speed
// of the link.
const maxSwitches = 256

func (r *Router) maySwitch() bool {
	if now := r.port.Now(); now >= r.counted+r.Patience {
		r.counted, r.begun = now, 0
	}
	r.begun++
	return r.begun <= maxSwitches
}

// beginSwitch sends a marker by way of via, behind all that went there.
func (r *Router) beginSwitch(via hop) {
	r.draw()
	r.stats.PathSwitches++
	r.pending = &pathSwitch{number: r.number, via: via, until: r.port.Now() + r.Patience}
	r.mark(via)
	r.port.Wake(r.Patience)
}

// ask has the holder say that it is open, before this node hands its custody over.
func (r *Router) ask(t hop) {
	if r.pending != nil {
		return
	}
	r.draw()
	r.pending = &pathSwitch{number: r.number, via: t, ask: true, pause: r.Patience}
	r.remind(r.pending)
}

// remind sends the marker of an ask, again with pauses that double.
func (r *Router) remind(c *pathSwitch) {
	c.pause = min(c.pause, 32*r.Patience)
	c.until = r.port.Now() + c.pause
	r.mark(c.via)
	r.port.Wake(c.pause)
}

// marks counts the markers of this process, from a random number on.
var marks atomic.Uint64

func init() { marks.Store(uint64(rand.Uint32() >> 1)) }

// draw makes the next marker's number. It is above all earlier ones of this node, of other Routers of the
// name too: answers to theirs may be under way. And it is random in between: only a node that the
// marker reaches can answer it.
func (r *Router) draw() {
	r.number = marks.Add(1)<<32 | uint64(rand.Uint32())&^0xff | uint64(uint8(r.number)+1)
}

func (r *Router) mark(via hop) {
	r.port.Send(via.node.Address, &wire.Marker{Name: r.Name, From: r.Self, Number: r.number, Token: uint64(via.token)})
}

// answered: the holder has taken up all that went before our marker.
func (r *Router) answered(m *wire.MarkerAck) {
	c := r.pending
	at := r.named(hop{node: m.From, token: lease.Token(m.Token)})
	if r.sought != 0 && m.Number == r.sought {
		r.heard(at)
	}
	if c == nil || m.Number != c.number {
		return
	}
	stale := r.known && at.token < r.host.token || r.phase == open && at.token < r.own
	if stale && c.ask {
		return // it does not know its ownership yet, or not any more: it is asked again after the pause
	}
	r.pending = nil
	switch {
	case stale && !c.ask && c.via.is(at):
		// The holder has lost the name and does not know it: that was no planned move.
		r.stats.Unordered++
		r.path = path{}
	case stale && !c.ask:
		// The name has moved on since. What the holder took up may still be there: the
		// next path switch goes by way of it.
		r.path = path{hop: at, used: true}
	case r.phase == open:
		// The actor here is about to hear of a later one, or that one that the store has
		// lost it. Until then the gate here has its say: another marker would be answered
		// in the same way.
		r.stats.Unordered++
		r.path = path{}
	case c.ask:
		r.learn(at)
		if r.path.node.GetIncarnation() == at.node.GetIncarnation() {
			r.path.hop, r.path.confirmed, r.doubted = at, true, false
		}
	default:
		r.learn(at)
		r.path, r.doubted = path{hop: at, used: true, confirmed: true}, false // what went before is with it
	}
	r.flush()
}

// named is the holder as its record names it, if it is that: a lease of the users' may name one in
// another way than its node does itself. A token is of one ownership.
func (r *Router) named(at hop) hop {
	if r.known && at.token == r.host.token && at.node.GetAddress() == r.host.node.GetAddress() {
		return r.host
	}
	return at
}

// learn takes up a later ownership that its holder told of.
func (r *Router) learn(at hop) {
	if at.token > r.host.token || !r.known {
		r.doubted = r.doubted && r.host.is(at)
		r.host, r.known = at, true
	}
}

// markerBack: our own marker came back, and so has all that went before it.
func (r *Router) markerBack(m *wire.Marker) {
	if c := r.pending; c != nil && m.Number == c.number && !c.ask {
		r.pending, r.path = nil, path{}
		r.flush()
	}
}

// giveUp ends a path switch that takes too long.
func (r *Router) giveUp() {
	r.stats.Unordered++
	r.pending, r.path = nil, path{}
	r.flush()
}

// maxTries is how often one message is handed over. What breaks every link that it is
// sent over must not hold up the rest for ever.
const maxTries = 8

// reclaim puts what was handed over and not acknowledged first again.
func (r *Router) reclaim(items []*Item) {
	back := make([]*Item, 0, len(items))
	for _, it := range items {
		it.first, it.under, it.kept, it.loose = true, overAll, true, false
		if it.tries++; it.tries < maxTries {
			back = append(back, it)
		} else if it.marker == nil {
			r.port.Refuse(it, wire.Reason_REASON_UNDECODABLE, "it was sent to one node after another, and none has taken it")
		}
	}
	r.queue.putBack(back)
}
