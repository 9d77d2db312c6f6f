package route

import (
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

// view is what this node knows of the name's ownership, and what its parts share.
type view struct {
	Config
	port  Port
	stats Stats

	phase phase
	lost  bool        // ending: the lease was lost, and another may hold the name
	own   lease.Token // of the last actor that was open here
	floor lease.Token // below own: the highest token known to be of an earlier ownership

	host    hop // the holder by the records, or by word
	known   bool
	hearsay bool // the word of a member, where the records tell of no holder
	doubted bool // the link to it broke since: it has to say that it is open before anything goes
}

// target is where mail has to go; false if no host is known.
func (v *view) target() (hop, bool) {
	switch {
	case v.phase == ending:
		return hop{}, false
	case v.phase == open:
		return hop{here: true, token: v.own}, true
	case v.remote():
		return v.host, true
	}
	return hop{}, false
}

// mine reports whether h is an ownership of this node.
func (v *view) mine(h hop) bool { return h.node.GetIncarnation() == v.Self.Incarnation }

// remote reports whether another node is known to hold the name.
func (v *view) remote() bool {
	n := v.host.node
	return v.known && n.GetAddress() != "" && n.Address != v.Self.Address && !v.mine(v.host) && v.host.token > v.own
}

// fresh reports whether it was routed to the actor here by its present ownership. A
// transferred name that was adopted has two tokens, and mail that was routed by
// the first is right, too.
func (v *view) fresh(t hop, it *Item) bool {
	return t.here && it.routed() > v.floor && it.routed() <= t.token
}

// Ahead reports whether mail that was routed by token was so by newer knowledge than this node
// has: it would wait for an ownership yet to come.
func (v *view) Ahead(token lease.Token) bool {
	switch t, ok := v.target(); {
	case !ok:
		return token > max(v.own, v.host.token)
	case t.here:
		return token > t.token
	default:
		return token >= t.token
	}
}

// named is the holder as its record names it, if it is that: a lease of the users' may name one in
// another way than its node does itself. A token is of one ownership.
func (v *view) named(at hop) hop {
	if v.known && at.token == v.host.token && at.node.GetAddress() == v.host.node.GetAddress() {
		return v.host
	}
	return at
}

// learn takes up a later ownership that its holder told of.
func (v *view) learn(at hop) {
	if at.token > v.host.token || !v.known {
		v.doubted = v.doubted && v.host.is(at)
		v.host, v.known = at, true
	}
}

// Own is the token of the last actor that was open here.
func (v *view) Own() lease.Token { return v.own }

// Elsewhere reports whether another node is known to hold the name.
func (v *view) Elsewhere() bool { return v.Holder() != nil }

// Holder returns the other node that is known to hold the name, by the records or by its
// own word, which may be newer; nil if none is. It has an address.
func (v *view) Holder() *wire.Node {
	if v.phase == open || !v.remote() {
		return nil
	}
	return v.host.node
}

// MovedFrom reports whether the name is known to be held, and not at address: what went there
// may have been forwarded.
func (v *view) MovedFrom(address string) bool {
	return v.phase == open || v.known && v.host.node.GetAddress() != address
}

// due reports whether the time at has come. If it has not, Tick is called then: of several wakes
// the port may have kept the earliest.
func (v *view) due(at, now time.Duration) bool {
	if now < at {
		v.port.Wake(at - now)
	}
	return now >= at
}

// ack answers a marker.
func (v *view) ack(m *wire.Marker) {
	v.port.Send(m.From.GetAddress(), &wire.MarkerAck{Name: v.Name, Number: m.Number, From: v.Self, Token: uint64(v.own)})
}
