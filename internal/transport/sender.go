package transport

import (
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// The states of a channel:
//
//	         first mail                 link broke
//	unused ─────────────▶ up ──────────────────────────────▶ down
//	                      ▲  probes with back-off, while       │
//	                      │  anything waits for the peer       │
//	                      └────── answered on the new link ────┘
//
//	state  straight mail     kept mail                         probes
//	up     goes, in window   goes, in window                   behind 64 KiB or 1024 messages, behind frames, after 50 ms; unanswered: 1 s, doubling to 8 s
//	down   no room           no room; what was not taken waits 100 ms, doubling to 2 s
//
//	event in down                          what becomes of the frames that were not taken
//	answered by the same life              those above the number it took are sent, in order
//	answered by another life               they return to their owners
//	no answer for a minute                 they return to their owners, and remote makes the link again
//
// Frames of one link are numbered without gaps, and a receiver takes only the next one. So
// a frame that a link swallows holds back those behind it; the answer shows it, and the
// sender gives the link up. When the peer answers on a new link, it takes nothing of an
// earlier one any more: only then does the sender number again, or give frames back. An
// answer of another life on a link that is up makes the sender give that link up first.
//
// Messages about mail (markers and their answers) take no room. In down they wait behind
// the frames.
//
// A first link needs no answer: nothing was sent before it that could be taken twice. A
// channel that was at rest for a minute may be forgotten. The next one to its address
// begins down, on a link above all that were forgotten, and ignores acknowledgements of frames
// that it has not sent.

// The window of one peer, and how a sender waits.
const (
	// MaxMessages and MaxBytes bound what is on its way to one peer. One message
	// may begin while there is room for a part of it.
	MaxMessages = 16384
	MaxBytes    = 4 << 20

	legMessages = 1024 // a probe goes behind that much
	legBytes    = 64 << 10
	probeAfter  = 50 * time.Millisecond // the last straight message at rest is probed
	silentAfter = time.Second           // a probe that was not answered is sent again
	silentMost  = 8 * time.Second
	silentFor   = 15 * time.Second       // then the link counts as broken
	downAfter   = 100 * time.Millisecond // a link that is not answered is probed again
	downMost    = 2 * time.Second
	giveUpAfter = time.Minute
	maxTries    = 5 // of one frame that vanishes on a link that lives
	maxLater    = 1024
	laterFor    = 2 * time.Second // a message about mail is of use, or is sent again later
)

// outgoing is a message to be handed to remote.
type outgoing struct {
	to   *actor.PID
	msg  any
	lost *atomic.Int64 // of straight mail: where it counts
}

// late is a message about mail that waits for the link.
type late struct {
	outgoing
	since time.Duration
}

// sender is the sending half of a channel, as a state machine: it hears what
// happens, and leaves in out what to send, in order. The zero value, with its
// first fields set, was never used.
type sender struct {
	self   *wire.Node // address and life of this node
	mail   *actor.PID // of the peer's Node
	window int        // in messages
	bytes  int
	base   uint64 // above 0: there may have been a channel, with links up to this

	link   uint64
	up     bool
	peer   string // the life that answered last; empty until one has
	number uint64 // of the last frame
	frames []frame
	later  []late  // messages about mail, for when the link is up
	told   []Owner // whose frames are taken, or go on
	broke  bool    // the link did, and watchers have to hear it
	redial bool    // it has not been answered for long: remote is to make it again

	probes  uint64
	legs    []leg              // behind each went a probe that was not answered yet
	open    leg                // what went since
	flying  leg                // the messages and bytes of all of these
	since   time.Duration      // when the first of open went
	asked   time.Duration      // when the last probe went
	pause   time.Duration      // before it is sent again
	heard   time.Duration      // when an answer came last, or began to be waited for
	expects string             // the life that a record told of last
	broken  time.Duration      // since when the link is down, or waited for though it is
	arrived uint64             // messages that answers told of, in all
	ended   map[Owner]struct{} // these have frames under way, and wait for nothing any more
	waiting map[Owner]uint64   // until what number of arrived there is mail before theirs

	out []outgoing
}

// room reports whether mail may go now.
func (s *sender) room() bool {
	return (s.up || s.link == 0 && s.base == 0) && s.flying.messages < s.window && s.flying.bytes < s.bytes
}

// begin makes the first link.
func (s *sender) begin(now time.Duration) {
	switch {
	case s.link > 0:
		if !s.up && !s.wanted() {
			s.broken = now // from here on it is waited for
		}
	case s.base > 0: // the peer may have taken frames of an earlier channel
		s.link, s.broken, s.asked, s.pause = s.base+1, now, now-downAfter, downAfter
	default:
		s.link, s.up = 1, true
		s.probe(now)
	}
}

// straight sends a message that is not kept; on a link that is down it is lost. With a
// nil PID it is its caller's to send before anything else. It returns the number of the
// link that it went over, or was lost with.
func (s *sender) straight(to *actor.PID, msg any, size int, lost *atomic.Int64, now time.Duration) (link uint64) {
	s.begin(now)
	if !s.up {
		lost.Add(1)
		return s.link - 1
	}
	s.open.add(lost)
	if to != nil {
		s.out = append(s.out, outgoing{to, msg, lost})
	}
	s.count(size, now)
	return s.link
}

// present is the number of the link that mail would go over now.
func (s *sender) present() uint64 {
	if s.link == 0 {
		return s.base + 1
	}
	return s.link
}

// control sends a message about mail, which takes no room. While the link is down it
// waits behind the frames that do, and the link is probed as if it had just broken; what is beyond
// maxLater is lost.
func (s *sender) control(to *actor.PID, msg any, now time.Duration) {
	switch {
	case s.up || s.link == 0 && s.base == 0:
		s.out = append(s.out, outgoing{to: to, msg: msg})
	case len(s.later) < maxLater:
		s.begin(now)
		s.later = append(s.later, late{outgoing{to: to, msg: msg}, now})
		s.pause = min(s.pause, downAfter) // it can't wait for as long as pauses grow
		s.hurry(now)
	}
}

func (s *sender) count(size int, now time.Duration) {
	if s.open.messages == 0 {
		s.since = now
	}
	s.open.messages++
	s.open.bytes += size + overhead
	s.flying.messages++
	s.flying.bytes += size + overhead
	if s.legFull(s.open.messages, s.open.bytes) {
		s.probe(now)
	}
}

// legFull reports whether a probe goes behind that much: a quarter of the window at most,
// and so little that a slow link is seen to get on.
func (s *sender) legFull(messages, bytes int) bool {
	return 4*messages >= s.window || 4*bytes >= s.bytes || messages >= legMessages || bytes >= legBytes
}

// probe asks what has arrived of all that was sent so far.
func (s *sender) probe(now time.Duration) {
	s.probes++
	s.open.probe = s.probes
	if len(s.legs) == 0 {
		s.heard = now
	}
	s.legs = append(s.legs, s.open)
	s.open = leg{}
	s.asked, s.pause = now, silentAfter
	s.ask()
}

func (s *sender) ask() {
	s.out = append(s.out, outgoing{to: s.mail, msg: &wire.Probe{From: s.self, Link: s.link, Number: s.probes}})
}

// again repeats the last probe, of which nothing was heard.
func (s *sender) again(now, most time.Duration) {
	s.probes++ // what answers it answers the earlier ones, and an answer to these counts
	s.asked, s.pause = now, min(2*s.pause, most)
	s.ask()
}

// unprobed reports whether a probe is to go behind frames: one at a time.
func (s *sender) unprobed() bool { return s.up && s.open.frames > 0 && len(s.legs) == 0 }

// afterBurst is called when a burst was queued.
func (s *sender) afterBurst(now time.Duration) {
	if s.unprobed() {
		s.probe(now)
	}
}

// plain reports whether the time makes no difference to a straight message: it is
// neither the first since a probe, nor the last before one.
func (s *sender) plain(size int) bool {
	return s.open.messages > 0 && !s.legFull(s.open.messages+1, s.open.bytes+size+overhead)
}

// ack takes an answer; back is what returns to its owners.
func (s *sender) ack(m *wire.Ack, now time.Duration) (back []returned) {
	if m.Link != s.link || m.Number == 0 || m.Number > s.probes {
		return nil // of an earlier link, or made up
	}
	life := m.From.GetIncarnation()
	if !s.up {
		return s.linked(life, m.Taken, now)
	}
	if s.peer != "" && s.peer != life {
		// Another life has read this link, and may yet take what is under way on it. Its
		// word on a new link says what it took.
		return s.gone(now)
	}
	s.peer, s.heard = life, now
	last := uint64(0)
	n := 0
	for n < len(s.legs) && s.legs[n].probe <= m.Number {
		l := &s.legs[n]
		s.arrived += uint64(l.messages)
		s.flying.messages -= l.messages
		s.flying.bytes -= l.bytes
		last = max(last, l.last)
		n++
	}
	if s.legs = s.legs[n:]; len(s.legs) == 0 {
		s.legs = nil
	}
	s.taken(m.Taken)
	if len(s.frames) > 0 && s.frames[0].number <= last {
		return s.vanished(now) // it was read past, and is not there
	}
	s.afterBurst(now)
	return nil
}

// linked: the peer, in some life, has opened the link, and takes nothing of an earlier
// one any more. What it did not take goes on, numbered again without gaps; but what was
// meant for another life goes back.
func (s *sender) linked(life string, taken uint64, now time.Duration) (back []returned) {
	s.up = true
	s.taken(taken)
	if s.peer != "" && s.peer != life {
		back = s.recall(nil)
	}
	s.peer, s.number = life, taken
	told := map[Owner]bool{}
	for i := range s.frames {
		f := &s.frames[i]
		s.number++
		f.number = s.number
		s.transmit(f, now)
		if !told[f.owner] {
			told[f.owner] = true
			s.tell(f.owner)
		}
	}
	for _, m := range s.later {
		s.out = append(s.out, m.outgoing)
	}
	s.later = nil
	s.afterBurst(now)
	return back
}

// gone: the link broke. While it is down only probes went over it, which are repeated
// at their own pace. What owners that have ended had under way goes back to them.
func (s *sender) gone(now time.Duration) (back []returned) {
	if !s.up {
		return nil
	}
	for o := range s.ended {
		back = append(back, s.recall(o)...)
	}
	s.lose()
	s.ended, s.up, s.broke = nil, false, true
	s.link++
	s.broken, s.asked, s.pause = now, now-downAfter, downAfter
	if s.wanted() {
		s.probes++
		s.asked = now
		s.ask()
	}
	return back
}

// idle reports whether nothing is on its way and no owner waits.
func (s *sender) idle() bool {
	return len(s.frames)+len(s.legs)+len(s.later)+len(s.waiting)+len(s.out)+s.open.messages == 0
}

// wanted reports whether an owner needs the link.
func (s *sender) wanted() bool { return len(s.frames)+len(s.waiting)+len(s.later) > 0 }

// wait notes that an owner wants to know when there is room.
func (s *sender) wait(o Owner, now time.Duration) {
	if s.waiting == nil {
		s.waiting = map[Owner]uint64{}
	}
	s.begin(now)
	if _, ok := s.waiting[o]; !ok {
		s.waiting[o] = s.arrived + uint64(s.flying.messages)
	}
	s.hurry(now)
}

// leave forgets an owner that ends, and takes back what can't be under way.
func (s *sender) leave(o Owner) (back []returned) {
	delete(s.waiting, o)
	switch {
	case !s.up:
		back = s.recall(o)
	case o.Held().Load() > 0:
		if s.ended == nil {
			s.ended = map[Owner]struct{}{}
		}
		s.ended[o] = struct{}{}
	}
	return back
}

// hurry probes a link that is down, and was not probed as there was nothing to send.
func (s *sender) hurry(now time.Duration) {
	if !s.up && s.link > 0 && now >= s.asked+s.pause {
		s.again(now, downMost)
	}
}

// expect says that a record tells of a life at the peer's address. If that is another than the
// last one and the link is down, it is probed as if it had just broken: who was killed, and was
// started again, hosts as soon as its lease allows. It reports whether anything changed.
func (s *sender) expect(life string, now time.Duration) bool {
	known := s.expects
	s.expects = life
	if life == known || s.up || s.link == 0 {
		return false
	}
	s.pause = min(s.pause, downAfter/2)
	s.hurry(now)
	return true
}

// roomy takes the owners that are to be told: those that wait, if there is room for
// them.
func (s *sender) roomy() (owners []Owner) {
	owners, s.told = s.told, nil
	if len(s.waiting) == 0 || !s.up || 4*s.flying.messages > 3*s.window || 4*s.flying.bytes > 3*s.bytes {
		return owners
	}
	for o := range s.waiting {
		owners = append(owners, o)
	}
	s.waiting = nil
	return owners
}

// tick does what is due; back is what returns to its owners.
func (s *sender) tick(now time.Duration) (back []returned) {
	switch at := s.due(); {
	case at < 0 || now < at:
	case !s.up && now >= s.broken+giveUpAfter:
		back = s.recall(nil)
		for o := range s.waiting { // an owner that still needs the link says so again
			s.tell(o)
		}
		s.waiting, s.later, s.broken, s.redial = nil, nil, now, true
	case !s.up:
		for len(s.later) > 0 && now >= s.later[0].since+laterFor {
			s.later = s.later[1:]
		}
		if s.wanted() {
			s.again(now, downMost)
		}
	case len(s.legs) > 0 && now >= s.heard+silentFor:
		back = s.gone(now)
	case len(s.legs) > 0 && now >= s.asked+s.pause:
		s.again(now, silentMost)
	case s.open.messages > 0:
		s.probe(now)
	}
	return back
}

// due is when to call tick; below 0 for never.
func (s *sender) due() time.Duration {
	switch {
	case !s.up && (s.link == 0 || !s.wanted()):
		return -1
	case !s.up:
		return s.asked + s.pause
	case len(s.legs) > 0:
		return min(s.asked+s.pause, s.heard+silentFor)
	case s.open.messages > 0:
		return s.since + probeAfter
	}
	return -1
}

// This part is what a sender keeps: frames, until the peer has taken them.

// overhead is what a message costs besides its payload.
const overhead = 64

// frame is kept mail that the peer has not taken yet.
type frame struct {
	number uint64
	owner  Owner
	item   any
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
		m = &wire.Frame{What: f.msg.What, To: f.msg.To} // remote may still hold the first
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

// This part is what a sender knows of straight mail: how much of it is on its way, and whose.

// leg is what was sent from one probe to the next.
type leg struct {
	probe    uint64 // of the probe behind it
	messages int
	bytes    int
	frames   int
	last     uint64 // the number of its last frame
	straight []tally
}

// tally is whose straight messages they are.
type tally struct {
	lost *atomic.Int64
	n    int
}

// add counts one straight message. It looks at the last tally alone: a node may have
// thousands of owners.
func (l *leg) add(lost *atomic.Int64) {
	if n := len(l.straight); n > 0 && l.straight[n-1].lost == lost {
		l.straight[n-1].n++
		return
	}
	l.straight = append(l.straight, tally{lost, 1})
}

// lose forgets what is on its way; straight mail of it is counted.
func (s *sender) lose() {
	for _, l := range append(s.legs, s.open) {
		for _, t := range l.straight {
			t.lost.Add(int64(t.n))
		}
	}
	s.legs, s.open, s.flying = nil, leg{}, leg{}
}
