package route

import (
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// A Router knows two tokens. own is that of the last actor that was open here: mail goes to
// other nodes only by higher tokens. floor is below own: the highest token of an earlier
// ownership, of this node or another. Mail that was routed to this node by a token between the
// two came by no old way: it is new, and waits for no path switch.

// Routable reports whether mail can go somewhere, and nothing waits before it.
func (r *Router) Routable() bool { _, ok := r.target(); return ok && r.queue.empty() }

// Direct reports whether what senders of this node send goes to the actor here, and
// none of their mail is under way or waits that it could overtake. It stays so until
// another method of the Router is called.
func (r *Router) Direct() bool {
	return r.phase == open && r.path.is(hop{here: true, token: r.own})
}

// Own is the token of the last actor that was open here.
func (r *Router) Own() lease.Token { return r.own }

// Through returns where a message of this node goes now, and by which
// token, if it goes to another node and nothing waits that it could overtake; if the
// caller sends it, Went is called. Else ok is false, and it is for Accept.
func (r *Router) Through() (node *wire.Node, token lease.Token, ok bool) {
	if r.phase != away || !r.queue.empty() || !r.remote() || !r.path.is(r.host) {
		return nil, 0, false
	}
	return r.host.node, r.host.token, true
}

// Went says that what Through let pass was sent.
func (r *Router) Went() { r.path.used, r.path.dead = true, false }

// Ahead reports whether mail that was routed by token would wait for an ownership yet to
// come.
func (r *Router) Ahead(token lease.Token) bool {
	return r.ahead(&Item{Wire: &wire.Envelope{Token: uint64(token)}})
}

// Elsewhere reports whether another node is known to hold the name.
func (r *Router) Elsewhere() bool { return r.Holder() != nil }

// Holder returns the other node that is known to hold the name, by the records or by its
// own word, which may be newer; nil if none is. It has an address.
func (r *Router) Holder() *wire.Node {
	if r.phase == open || !r.remote() {
		return nil
	}
	return r.host.node
}

// MovedFrom reports whether the name is known to be held, and not at address: what went there
// may have been forwarded.
func (r *Router) MovedFrom(address string) bool {
	return r.phase == open || r.known && r.host.node.GetAddress() != address
}

// Served reports whether other nodes sent mail here.
func (r *Router) Served() bool { return r.served }

// Idle reports whether nothing waits here.
func (r *Router) Idle() bool { return r.phase == away && !r.Waits() }

// Waits reports whether mail waits here, or a marker of another node.
func (r *Router) Waits() bool { return !r.queue.empty() }

// Stats returns the counters.
func (r *Router) Stats() Stats {
	s := r.stats
	s.Buffered, s.Bytes = r.queue.waiting, r.queue.bytes+r.queue.kept
	return s
}
