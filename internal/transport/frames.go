package transport

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// This file is what a sender keeps: frames, until the peer has taken them.

// overhead is what a message costs besides its payload.
const overhead = 64

// frame is kept mail that the peer has not taken yet.
type frame struct {
	number uint64
	owner  Owner
	item   any
	to     string
	msg    *wire.Frame
	size   int
	sent   bool
	holes  int // how often a link that lives has lost it
}

// returned is what its owner gets back.
type returned struct {
	owner Owner
	items []any
}

// keep sends a frame.
func (s *sender) keep(f frame, now time.Duration) {
	s.begin(now)
	s.number++
	f.number = s.number
	s.frames = append(s.frames, f)
	f.owner.Held().Add(1)
	if s.up {
		s.transmit(&s.frames[len(s.frames)-1], now)
		return
	}
	s.hurry(now)
}

func (s *sender) transmit(f *frame, now time.Duration) {
	m := f.msg
	if f.sent {
		m = &wire.Frame{What: f.msg.What, To: f.to} // remote may still hold the first
	}
	f.sent = true
	m.From, m.Link, m.Number = s.self, s.link, f.number
	s.out = append(s.out, outgoing{to: s.mail, msg: m})
	s.open.frames, s.open.last = s.open.frames+1, f.number
	s.count(f.size, now)
}

// vanished: a link lost a frame, and lives. It is given up for a new one, and a frame
// that vanishes again and again goes back to its owner.
func (s *sender) vanished(now time.Duration) (back []returned) {
	f := &s.frames[0]
	if f.holes++; f.holes >= maxTries {
		f := *f
		s.drop(1)
		back = []returned{{f.owner, []any{f.item}}}
	}
	return append(back, s.gone(now)...)
}

// taken drops the frames that the peer has taken custody of. One that was never sent is
// none of them: what the peer says may be of an earlier channel.
func (s *sender) taken(upTo uint64) {
	n := 0
	for n < len(s.frames) && s.frames[n].number <= upTo && s.frames[n].sent {
		n++
	}
	s.drop(n)
}

// drop forgets the first n frames.
func (s *sender) drop(n int) {
	for i := range n {
		if o := s.frames[i].owner; o.Held().Add(-1) == 0 {
			s.tell(o)
			delete(s.ended, o)
		}
		s.frames[i] = frame{}
	}
	if s.frames = s.frames[n:]; len(s.frames) == 0 {
		s.frames = nil // and with it the memory of a burst
	}
}

// tell has an owner told that something has changed.
func (s *sender) tell(o Owner) {
	if n := len(s.told); n == 0 || s.told[n-1] != o {
		s.told = append(s.told, o)
	}
}

// recall takes the frames of an owner back, or of all.
func (s *sender) recall(o Owner) (back []returned) {
	kept := s.frames[:0]
	at := map[Owner]int{}
	for _, f := range s.frames {
		if o != nil && f.owner != o {
			kept = append(kept, f)
			continue
		}
		f.owner.Held().Add(-1)
		i, ok := at[f.owner]
		if !ok {
			i = len(back)
			at[f.owner] = i
			back = append(back, returned{owner: f.owner})
		}
		back[i].items = append(back[i].items, f.item)
	}
	clear(s.frames[len(kept):])
	if s.frames = kept; len(kept) == 0 {
		s.frames = nil
	}
	return back
}
