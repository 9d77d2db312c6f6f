package route

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/mutant"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// crossing is the wait between an old way and a new one; or, as a probe, the
// wait for a sign of life from a host whose link broke.
type crossing struct {
	number uint64
	via    hop
	until  time.Duration
	probe  bool
}

// reroute makes the path that of the target, once nothing of ours is under way
// on another. If something may be, it begins a crossing.
func (r *Router) reroute() {
	t, ok := r.target()
	switch {
	case !ok || r.path.is(t) || r.cross != nil && !r.cross.probe:
	case r.needsMarker():
		r.begin(r.path.hop, false)
	default:
		r.cross = nil // a probe of what is left now
		if t.here || r.out.to != t.node.Incarnation {
			r.reclaim() // sent to one who is gone
		}
		r.path = path{hop: t}
	}
	r.probe()
}

// needsMarker reports whether mail of ours may still be under way on the path.
func (r *Router) needsMarker() bool {
	p := r.path
	if mutant.On(mutant.MarkerIgnored) {
		return false
	}
	return p.used && !p.here && !p.dead && (p.busy || r.port.Now() < p.sent+r.Rest || len(r.out.items) > 0)
}

// begin sends a marker by way of via.
func (r *Router) begin(via hop, probe bool) {
	r.number++
	wait := r.Patience
	if !probe {
		r.stats.Crossings++
	}
	r.cross = &crossing{number: r.number, via: via, until: r.port.Now() + wait, probe: probe}
	token := via.token
	if probe {
		token-- // the host is to answer, not to wait for newer knowledge
	}
	m := &wire.Marker{Name: r.Name, From: r.Self, Number: r.number, Token: uint64(token)}
	if !probe && len(r.out.items) > 0 && r.out.to == via.node.Incarnation {
		r.relay(via, Item{marker: m, kept: true}, m) // behind what is not acknowledged
	} else {
		r.port.Send(via.node.Address, m)
	}
	r.port.Wake(wait)
}

// probe asks a host in doubt for a sign of life, as long as something waits.
func (r *Router) probe() {
	if r.doubt && !r.open && r.cross == nil && (len(r.buffer.items) > 0 || len(r.out.items) > 0) {
		r.begin(r.host, true)
	}
}

// answered: the holder has taken up all that went before our marker.
func (r *Router) answered(m *wire.MarkerAck) {
	c := r.cross
	if r.doubt && m.From.GetIncarnation() == r.host.node.GetIncarnation() {
		r.doubt = false
	}
	at := hop{node: m.From, token: lease.Token(m.Token)}
	switch {
	case c == nil || m.Number != c.number:
	case c.probe:
		r.cross, r.doubt, r.path.dead = nil, false, false
		r.learn(at)
		r.resend()
	case r.known && at.token < r.host.token || at.token < r.own:
		// By a holder that has lost the name and does not know it yet: that was no
		// planned move, and what it took up may still come back.
		r.stats.Unordered++
		r.end(path{})
		return
	default:
		r.learn(at)
		r.end(path{hop: at, used: true, sent: r.port.Now()})
		return
	}
	r.flush()
}

// home: our own marker came back, and so has all that went before it.
func (r *Router) home(m *wire.Marker) {
	if c := r.cross; c != nil && m.Number == c.number && !c.probe {
		r.end(path{})
	}
}

// end ends a crossing: nothing of ours is under way but on p.
func (r *Router) end(p path) {
	r.out.take() // the marker came behind it
	r.cross, r.path = nil, p
	r.flush()
}

// learn takes up a later ownership that its holder told of.
func (r *Router) learn(at hop) {
	if at.token > r.host.token || !r.known {
		r.host, r.known, r.doubt = at, true, false
	}
}

// giveUp ends a crossing that takes too long.
func (r *Router) giveUp() {
	r.cross = nil
	r.stats.Unordered++
	r.reclaim()
	r.path = path{}
	r.flush()
}

// reclaim takes back what was relayed and not acknowledged; it goes first.
func (r *Router) reclaim() {
	var items []Item
	for _, it := range r.out.take() {
		if it.marker == nil || !r.ours(it.marker) {
			it.first = true
			items = append(items, it)
		}
	}
	r.buffer.items = append(items, r.buffer.items...)
}
