package memnet

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Link is how the messages of one address to another travel. The zero Link
// carries them at once.
type Link struct {
	// Delay is how long a message travels, once it has been sent in full.
	Delay time.Duration
	// Jitter adds a random time in [0, Jitter) to each Delay. No message overtakes
	// an earlier one: it arrives with that one at the soonest.
	Jitter time.Duration
	// Seed fixes Jitter's random numbers, together with the link's addresses. Links
	// do not draw from one another, so a history replays link by link.
	Seed uint64
	// Bandwidth is in bytes per second. A message occupies the link for its size
	// over Bandwidth, once those before it have left. 0: unlimited.
	Bandwidth int
}

// ends is a direction between two addresses.
type ends struct{ from, to string }

// wire is what a link keeps from one life of its ends to the next. All of it is
// under Net.mu.
type wire struct {
	cut     bool
	shape   Link
	random  *rand.Rand
	stalled bool
	since   time.Time // the stall's beginning

	messages, bytes         uint64 // that it took up
	peakMessages, peakBytes int
}

// wire returns a link's; under mu.
func (n *Net) wire(e ends) *wire {
	w := n.wires[e]
	if w == nil {
		w = &wire{}
		n.wires[e] = w
	}
	return w
}

// Shape makes messages of from to to travel as l says, from now on. What has begun
// to leave keeps its times, and what waits for bandwidth goes by the new ones. Order
// is kept: a shorter delay does not let a message overtake an earlier one.
func (n *Net) Shape(from, to string, l Link) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(from + "\x00" + to))
	n.mu.Lock()
	defer n.mu.Unlock()
	e := ends{from, to}
	w := n.wire(e)
	w.shape, w.random = l, rand.New(rand.NewPCG(l.Seed, h.Sum64()))
	if p := n.pipes[e]; p != nil && !w.stalled {
		p.plan(p.left(time.Now()) + 1) // one is leaving at most
		p.again()
	}
}

// SetDelay is Shape with nothing but a delay.
func (n *Net) SetDelay(from, to string, d time.Duration) { n.Shape(from, to, Link{Delay: d}) }

// Stall holds what is sent from from to to, as a TCP connection does that hangs:
// no node is told, and the queue fills up to its bound. Like a cut it is the
// network's, and outlives those at its ends.
func (n *Net) Stall(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.wire(ends{from, to}); !w.stalled {
		w.stalled, w.since = true, time.Now()
	}
}

// Unstall lets what was held go on, in order. What had left before the stall has
// travelled meanwhile; the rest leaves now, at the link's bandwidth.
func (n *Net) Unstall(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := ends{from, to}
	w := n.wire(e)
	if !w.stalled {
		return
	}
	w.stalled = false
	if p := n.pipes[e]; p != nil {
		p.plan(p.left(w.since))
		p.again()
	}
}

// Wire returns how much the link has taken up in all lives of its ends: messages of
// users and of the system, and their bytes, names and headers included. What was
// refused, lost or did not fit is not among it.
func (n *Net) Wire(from, to string) (messages, bytes uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.wire(ends{from, to})
	return w.messages, w.bytes
}

// Peak returns the most that ever was on its way over the link, travelling or
// waiting: messages of users and of the system, and their bytes. The two may be
// from different moments.
func (n *Net) Peak(from, to string) (messages, bytes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.wire(ends{from, to})
	return w.peakMessages, w.peakBytes
}

// size is what f takes on a link: its payload, the names in it, and its headers.
func (f *frame) size() int {
	size := len(f.payload) + len(f.typeName) + len(f.target.Address) + len(f.target.Id)
	if f.sender != nil {
		size += len(f.sender.Address) + len(f.sender.Id)
	}
	for k, v := range f.header {
		size += len(k) + len(v)
	}
	return size
}
