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

// search asks members for the next holder.
type search struct {
	way
	sought uint64        // the number of the marker that asks; 0: none
	seekAt time.Duration // when the next is asked; 0: none will be
	seeks  time.Duration // the pause after that
}

// stranded reports whether mail waits here, or went to a node that is not reached, and no later holder is
// known.
func (s *search) stranded() bool {
	over := s.phase == away || s.phase == ending && s.lost
	return over && s.own > 0 && !s.remote() && (!s.queue.empty() || s.path.used && s.path.dead)
}

// seekLater has members asked, after a pause.
func (s *search) seekLater() {
	if s.seekAt == 0 && s.stranded() && len(s.port.Members()) > 0 {
		s.seeks, s.seekAt = seekFirst, s.port.Now()+seekFirst
		s.port.Wake(seekFirst)
	}
}

// seek asks a member, under one number until that is answered.
func (s *search) seek() {
	members := s.port.Members()
	if s.seekAt = 0; !s.stranded() || len(members) == 0 {
		return
	}
	if s.sought == 0 {
		s.draw()
		s.sought = s.number
	}
	s.port.Send(members[rand.IntN(len(members))].Address,
		&wire.Marker{Name: s.Name, From: s.Self, Number: s.sought, Token: uint64(s.own), Seek: true})
	s.seeks = min(2*s.seeks, seekMost)
	s.seekAt = s.port.Now() + s.seeks
	s.port.Wake(s.seeks)
}

// passOn answers another node's question if the actor here is the later holder, or passes it on to the one
// that this node knows. Where it knows of none it does nothing: that node asks again.
func (s *search) passOn(m *wire.Marker) {
	switch token := lease.Token(m.Token); {
	case m.Name != s.Name || m.Hops > maxHops:
	case s.phase == open && s.own > token:
		s.ack(m)
	case s.phase == away && s.remote() && s.host.token > token:
		next := proto.CloneOf(m)
		next.Hops++
		s.port.Send(s.host.node.Address, next)
	}
}

// heard takes the holder that answered for the host, if it is to be believed.
func (s *search) heard(number uint64, at hop) bool {
	if s.sought == 0 || number != s.sought {
		return false
	}
	believed := s.stranded() && at.token > s.own && at.token >= s.host.token && slices.ContainsFunc(s.port.Members(), at.node.Is)
	if believed {
		s.sought, s.seekAt = 0, 0
		s.host, s.known, s.hearsay, s.doubted = at, true, true, false
	}
	return believed
}
