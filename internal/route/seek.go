package route

import (
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// This file is how a node that hosted, and may be cut off from the records, learns of the next holder:
// by the word of members. A Router with mail that waits after the end of its actor asks one member after
// the other. Each passes the question on to the holder that it knows, and the holder answers. The answer
// is believed if the holder is of the last list of members, under a token above that of the actor, for
// mail only: the holder must confirm what it takes custody of, and who may work is for the lease to say.

// The pause before a member is asked, and the longest between two.
const (
	seekFirst = time.Second / 4
	seekMost  = 2 * time.Second
)

// stranded reports whether mail waits here, or went to a node that is not reached, and no later holder is
// known.
func (r *Router) stranded() bool {
	over := r.phase == away || r.phase == ending && r.lost
	return over && r.own > 0 && !r.remote() && (!r.queue.empty() || r.path.used && r.path.dead)
}

// seekLater has members asked, after a pause.
func (r *Router) seekLater() {
	if r.seekAt == 0 && r.stranded() && len(r.port.Members()) > 0 {
		r.seeks, r.seekAt = seekFirst, r.port.Now()+seekFirst
		r.port.Wake(seekFirst)
	}
}

// seek asks a member, under one number until that is answered.
func (r *Router) seek() {
	members := r.port.Members()
	if r.seekAt = 0; !r.stranded() || len(members) == 0 {
		return
	}
	if r.sought == 0 {
		r.draw()
		r.sought = r.number
	}
	r.port.Send(members[rand.IntN(len(members))].Address,
		&wire.Marker{Name: r.Name, From: r.Self, Number: r.sought, Token: uint64(r.own), Seek: true})
	r.seeks = min(2*r.seeks, seekMost)
	r.seekAt = r.port.Now() + r.seeks
	r.port.Wake(r.seeks)
}

// passOn answers another node's question if the actor here is the later holder, or passes it on to the one
// that this node knows. Where it knows of none it does nothing: that node asks again.
func (r *Router) passOn(m *wire.Marker) {
	switch token := lease.Token(m.Token); {
	case m.Name != r.Name || m.Hops > maxHops:
	case r.phase == open && r.own > token:
		r.port.Send(m.From.GetAddress(), &wire.MarkerAck{Name: r.Name, Number: m.Number, From: r.Self, Token: uint64(r.own)})
	case r.phase == away && r.remote() && r.host.token > token:
		next := proto.CloneOf(m)
		next.Hops++
		r.port.Send(r.host.node.Address, next)
	}
}

// heard takes the holder that answered for the host, if it is to be believed.
func (r *Router) heard(at hop) {
	if r.stranded() && at.token > r.own && at.token >= r.host.token && slices.ContainsFunc(r.port.Members(), at.node.Is) {
		r.sought, r.seekAt = 0, 0
		r.host, r.known, r.hearsay, r.doubted = at, true, true, false
		r.leaveLater()
		r.flush()
	}
}
