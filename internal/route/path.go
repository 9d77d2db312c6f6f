package route

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/wire"
)

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

// way is how mail of this node goes, and what it waits for before it goes another way.
type way struct {
	box
	path    path
	pending *pathSwitch
	number  uint64        // of the last marker
	begun   int           // path switches since counted
	counted time.Duration // at most Patience ago
}

// reroute makes the path that of the target, once nothing of ours is under way
// on another. If something may be, it begins a path switch.
func (w *way) reroute() {
	t, ok := w.target()
	p := w.path
	switch {
	case !ok || p.is(t) || w.pending != nil && !w.pending.ask:
	case p.used && !p.here && !p.dead && w.maySwitch():
		w.beginSwitch(p.hop)
	default:
		if p.used && !p.here && !p.dead {
			w.stats.Unordered++
		}
		if p.used && p.dead {
			w.reclaim(w.port.Recall(p.node.GetAddress())) // the lease has moved on from a node that can't be reached
		}
		w.pending = nil
		w.path = path{hop: t}
	}
}

// maxSwitches bounds the path switches that are begun within Patience: a belt, so that
// nodes which disagree on who holds the name don't send each other markers at the speed
// of the link.
const maxSwitches = 256

func (w *way) maySwitch() bool {
	if now := w.port.Now(); now >= w.counted+w.Patience {
		w.counted, w.begun = now, 0
	}
	w.begun++
	return w.begun <= maxSwitches
}

// beginSwitch sends a marker by way of via, behind all that went there.
func (w *way) beginSwitch(via hop) {
	w.draw()
	w.stats.PathSwitches++
	w.pending = &pathSwitch{number: w.number, via: via, until: w.port.Now() + w.Patience}
	w.mark(via)
	w.port.Wake(w.Patience)
}

// ask has the holder say that it is open, before this node hands its custody over.
func (w *way) ask(t hop) {
	if w.pending != nil {
		return
	}
	w.draw()
	w.pending = &pathSwitch{number: w.number, via: t, ask: true, pause: w.Patience}
	w.remind(w.pending)
}

// remind sends the marker of an ask, again with pauses that double.
func (w *way) remind(c *pathSwitch) {
	c.pause = min(c.pause, 32*w.Patience)
	c.until = w.port.Now() + c.pause
	w.mark(c.via)
	w.port.Wake(c.pause)
}

// marks counts the markers of this process, from a random number on.
var marks atomic.Uint64

func init() { marks.Store(uint64(rand.Uint32() >> 1)) }

// draw makes the next marker's number. It is above all earlier ones of this node, of other Routers of the
// name too: answers to theirs may be under way. And it is random in between: only a node that the
// marker reaches can answer it.
func (w *way) draw() {
	w.number = marks.Add(1)<<32 | uint64(rand.Uint32())&^0xff | uint64(uint8(w.number)+1)
}

func (w *way) mark(via hop) {
	w.port.Send(via.node.Address, &wire.Marker{Name: w.Name, From: w.Self, Number: w.number, Token: uint64(via.token)})
}

// answered: the holder has taken up all that went before our marker. It reports whether the
// way has changed.
func (w *way) answered(number uint64, at hop) bool {
	c := w.pending
	if c == nil || number != c.number {
		return false
	}
	stale := w.known && at.token < w.host.token || w.phase == open && at.token < w.own
	if stale && c.ask {
		return false // it does not know its ownership yet, or not any more: it is asked again after the pause
	}
	w.pending = nil
	switch {
	case stale && c.via.is(at):
		w.giveUp() // the holder has lost the name and does not know it: that was no planned move
	case stale:
		// The name has moved on since. What the holder took up may still be there: the
		// next path switch goes by way of it.
		w.path = path{hop: at, used: true}
	case w.phase == open:
		// The actor here is about to hear of a later one, or that one that the store has
		// lost it. Until then the gate here has its say: another marker would be answered
		// in the same way.
		w.giveUp()
	case c.ask:
		w.learn(at)
		if w.path.node.GetIncarnation() == at.node.GetIncarnation() {
			w.path.hop, w.path.confirmed, w.doubted = at, true, false
		}
	default:
		w.learn(at)
		w.path, w.doubted = path{hop: at, used: true, confirmed: true}, false // what went before is with it
	}
	return true
}

// markerBack: our own marker came back, and so has all that went before it.
func (w *way) markerBack(m *wire.Marker) bool {
	c := w.pending
	back := c != nil && m.Number == c.number && !c.ask
	if back {
		w.pending, w.path = nil, path{}
	}
	return back
}

// giveUp ends a path switch without knowing that all that went the old way has arrived.
func (w *way) giveUp() {
	w.stats.Unordered++
	w.pending, w.path = nil, path{}
}

// maxTries is how often one message is handed over. What breaks every link that it is
// sent over must not hold up the rest for ever.
const maxTries = 8

// reclaim puts what was handed over and not acknowledged first again.
func (w *way) reclaim(items []*Item) {
	back := make([]*Item, 0, len(items))
	for _, it := range items {
		it.first, it.under, it.kept, it.loose = true, overAll, true, false
		if it.tries++; it.tries < maxTries {
			back = append(back, it)
		} else if it.marker == nil {
			w.port.Refuse(it, wire.Reason_REASON_UNDECODABLE, "it was sent to one node after another, and none has taken it")
		}
	}
	w.queue.putBack(back)
}

// Direct reports whether what senders of this node send goes to the actor here, and
// none of their mail is under way or waits that it could overtake. It stays so until
// another method of the Router is called.
func (w *way) Direct() bool {
	return w.phase == open && w.path.is(hop{here: true, token: w.own})
}

// Went says that what Through let pass was sent.
func (w *way) Went() { w.path.used, w.path.dead = true, false }
