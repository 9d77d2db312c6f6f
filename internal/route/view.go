package route

import (
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// Routable reports whether mail can go somewhere now.
func (r *Router) Routable() bool { _, ok := r.target(); return ok && !r.doubt }

// Direct reports whether what senders of this node send goes to the actor here, and
// nothing of theirs is under way or waits that it could overtake. It stays so until
// another method of the Router is called.
func (r *Router) Direct() bool {
	return r.open && !r.ending && r.path.is(hop{here: true, token: r.own})
}

// Through returns where a message of this node is to be sent now, and by which
// token, if it goes to another node and nothing holds it up or could be overtaken
// by it; the Router takes it as sent. Else ok is false, and it is for Accept.
func (r *Router) Through() (node *wire.Node, token lease.Token, ok bool) {
	if r.open || r.ending || r.doubt || !r.remote() || !r.path.is(r.host) {
		return nil, 0, false
	}
	r.path.used = true
	if !r.path.busy { // a Tick's clock will do, for all that goes until then
		r.path.busy = true
		r.port.Wake(r.Rest)
	}
	return r.host.node, r.host.token, true
}

// Elsewhere reports whether another node is known to hold the name.
func (r *Router) Elsewhere() bool { return !r.open && r.remote() }

// Served reports whether other nodes sent mail here.
func (r *Router) Served() bool { return r.served }

// Idle reports whether nothing waits here, for anybody.
func (r *Router) Idle() bool {
	return !r.open && !r.ending && len(r.buffer.items) == 0 && len(r.out.items) == 0
}

// Stats returns the counters.
func (r *Router) Stats() Stats {
	s := r.stats
	s.Buffered = len(r.buffer.items) + len(r.back) + len(r.held.items)
	s.Kept = len(r.out.items)
	return s
}
