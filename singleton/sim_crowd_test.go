package singleton_test

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/singleton"
)

// This file has the histories in which links get congested. Their calm time is a
// crowded one: mailboxes fill, handlers and stops take up to minutes, and the
// singleton moves by plan over links that are slow or hang.

// What one message takes on a link at the most, and all that is no mail.
const (
	hopBytes   = 180      // with its envelope, the frame around it, and names
	otherBytes = 64 << 10 // of moves: offers, markers, probes
	otherMail  = 200
)

// drawJams makes up the settings of a congested history.
func (s *sim) drawJams() {
	s.within = simulate.Spread(s.r.Float64(), 10*time.Millisecond, 2*time.Minute)
	s.toil = simulate.Spread(s.r.Float64(), time.Microsecond, 30*time.Microsecond)
	// What is left when lingering ends is dropped, and may have been taken up, too; so
	// that does not end before all has got through.
	s.linger = 2 * time.Minute
	s.opts = append(s.opts, singleton.WithStop(func() any { return bye{} }, s.within), singleton.WithLinger(s.linger))
}

func addresses(slots []*slot) (all []string) {
	for _, sl := range slots {
		all = append(all, sl.id+":1")
	}
	return all
}

func (s *sim) jam() { s.logf("jam: %v", simulate.Jam(s.r, s.c.net, addresses(s.slots))) }

// ease ends the congestion of all links that those nodes are an end of.
func (s *sim) ease(slots ...*slot) {
	if s.jams {
		simulate.Ease(s.c.net, addresses(slots), addresses(s.slots))
	}
}

// note counts a job that is sent.
func (s *sim) note(j job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crowd {
		s.fates[j].crowd = true
		s.tally.Sent(0)
	}
}

// cameTo counts what became of a job; under mu.
func (s *sim) cameTo(f *fate) {
	if f.crowd && f.handled+f.dead == 1 {
		s.tally.Done(0)
	}
}

// labour is how long a handler takes in a crowded time: hardly ever long.
func (s *sim) labour(j job) time.Duration {
	if u := s.odds(1000, 21, uint64(j.Number)); u >= 2 {
		return time.Duration(u) * s.toil
	}
	return simulate.Spread(float64(s.odds(1000, 22, uint64(j.Number)))/1000, time.Millisecond, 2*time.Minute)
}

// lastWork is how long a child takes that was told to stop.
func (s *sim) lastWork(l *simLife) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.crowd || s.odds(2, 23, uint64(l.id)) == 0 {
		return 0
	}
	return simulate.Spread(float64(s.odds(1000, 24, uint64(l.id)))/1000, time.Millisecond, 2*time.Minute)
}

// crowded has the singleton move by plan while mail piles up.
func (s *sim) crowded() {
	s.mu.Lock()
	s.crowd, s.tally = true, simulate.Tally{}
	before, first := s.count(), len(s.order)
	s.mu.Unlock()
	net, kinds, began := s.c.net.Stats(), s.c.net.Kinds(), time.Now()
	for range 1 + s.r.IntN(3) {
		if !s.r.Step() {
			continue
		}
		s.jam()
		s.burst()
		s.chat(s.upTo(2*time.Second), nil)
		s.shift()
		if s.r.IntN(2) == 0 {
			s.ease(s.slots...)
		}
	}
	s.chat(300*time.Millisecond, nil)
	s.ease(s.slots...)
	for began := time.Now(); s.unhandled() > 0 && time.Since(began) < time.Hour; {
		time.Sleep(time.Second)
	}
	time.Sleep(s.within + ttl) // what is doubled comes late
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judge(before, first)
	s.thrift(net, simulate.TrafficSince(s.c.net, kinds), time.Since(began))
	s.crowd = false
}

// judge checks I5 at the end of a crowded time. No process died and no link broke,
// so nothing is handled twice, ever; what was not handled was dropped, and counted;
// and order is kept, unless a move says that it gave it up.
func (s *sim) judge(before singleton.Status, first int) {
	after, dead, wrong, unfit := s.count(), 0, 0, 0
	for j, f := range s.fates {
		if !f.crowd {
			continue
		}
		dead += f.dead
		if s.unfit(j) {
			unfit++
		}
		if f.handled+f.dead != 1 {
			if wrong++; wrong <= 5 {
				s.fail("I5: %v, sent at %v: handled %d, dead %d", j, f.sent.Format("04:05.000000"), f.handled, f.dead)
			}
		}
	}
	if wrong > 5 {
		s.fail("I5: and %d more", wrong-5)
	}
	dropped, refused := after.Dropped-before.Dropped, after.Undeliverable-before.Undeliverable
	if dead != dropped+refused || refused > unfit {
		s.fail("I6: %d dead letters, %d dropped, %d undeliverable, %d of them rightly", dead, dropped, refused, unfit)
	}
	last, wrong := map[string]int{}, 0
	for _, j := range s.order[first:] {
		if f := s.fates[j]; f == nil || !f.crowd {
			continue
		}
		if j.Number <= last[j.Sender] && after.Unordered == before.Unordered {
			if wrong++; wrong <= 5 {
				s.fail("I5: %v after number %d, and nothing is said of it", j, last[j.Sender])
			}
		}
		last[j.Sender] = j.Number
	}
}

// thrift checks that a jam is not made worse: that little is sent again, that no
// link's queue has more than there is, and that nothing was left on the way.
func (s *sim) thrift(before memnet.Stats, sent simulate.Traffic, took time.Duration) {
	now := s.c.net.Stats()
	s.log("crowded: %+v sent, for %d hops and %d moves, %d pending at the most", sent, s.tally.Hops, s.tally.Moves, s.tally.Peak)
	for _, what := range s.tally.Waste(sent, len(s.slots), took, hopBytes) {
		s.fail("waste: %s", what)
	}
	for _, from := range addresses(s.slots) {
		for _, to := range addresses(s.slots) {
			messages, queued := s.c.net.Peak(from, to)
			if messages > s.tally.Peak+s.jobs+otherMail || queued > (s.tally.Peak+s.jobs)*hopBytes*3/2+otherBytes {
				s.fail("waste: %s -> %s had %d messages in its queue, of %d bytes, with %d pending at the most", from, to, messages, queued, s.tally.Peak)
			}
		}
	}
	for what, n := range map[string]uint64{"broken": now.Broken - before.Broken, "overflown": now.Overflown - before.Overflown, "refused": now.Refused - before.Refused} {
		if n > 0 {
			s.fail("I5: %d messages were %s", n, what)
		}
	}
}

func (s *sim) unhandled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tally.Pending()
}

// unfit reports whether a job of a crowded time goes with a header that no other node can
// be told: it is refused, unless the singleton is on its sender's node.
func (s *sim) unfit(j job) bool {
	return strings.HasSuffix(j.Sender, "!") && s.odds(200, 41, uint64(j.Number)) == 0
}

// burst has nodes send much at once: nothing, or up to some thousands.
func (s *sim) burst() {
	n := int(simulate.Spread(s.r.Float64(), 1, []time.Duration{500, 5000}[s.r.IntN(2)]))
	s.logf("burst of %d", n)
	from := []*slot{s.some(), s.some()}
	for i := range n {
		sl := from[i%2]
		s.send(sl, sl.sender()+"!")
	}
}

// chat has all nodes send for d, or until a condition holds: often at first, and
// ever more rarely.
func (s *sim) chat(d time.Duration, until func() bool) (held bool) {
	for began := time.Now(); time.Since(began) < d; {
		time.Sleep(min(time.Second, time.Millisecond+s.upTo(3*time.Millisecond+time.Since(began)/10)))
		sl := s.some()
		s.send(sl, sl.sender()+"!")
		if until != nil && until() {
			return true
		}
	}
	return until == nil
}

// shift has the singleton move once, by plan, with whatever mail waits.
func (s *sim) shift() {
	// It is done with what it does, stops, a queue goes over a slow link, a stall ends,
	// and where there was no offer a name that is free is looked for.
	within := 2*time.Minute + s.within + s.linger + time.Minute + 8*time.Second + ttl + 15*time.Second
	var h *slot
	if !s.chat(within, func() bool { h = s.active(); return h != nil }) {
		s.end7("nobody hosts %v after a move", within)
	}
	if s.follow {
		s.lead(s.some(), 5*time.Millisecond)
		s.reached(within, s.leads)
		return
	}
	// What is under way to a manager that is gone is counted by nobody: so its links
	// are well, and what had begun to travel has arrived. Those of the others need not be.
	s.ease(h)
	s.chat(400*time.Millisecond, nil)
	ended := s.leave(h)
	s.logf("%s leaves", h.id)
	s.reached(within, nil)
	s.chat(s.upTo(time.Second), nil)
	for began := time.Now(); ; time.Sleep(time.Second) {
		select {
		case <-ended:
			s.start(h)
			s.reached(within, nil)
			return
		default:
		}
		if time.Since(began) > 15*time.Minute {
			s.end7("%s does not end", h.id)
		}
	}
}

func (s *sim) active() *slot {
	for _, sl := range s.slots {
		if sl.serves() && sl.m.Status().Phase == singleton.Active {
			return sl
		}
	}
	return nil
}

// reached waits until it is where it is to be.
func (s *sim) reached(within time.Duration, to *slot) {
	ok := s.chat(within, func() bool {
		h := s.active()
		return h != nil && (to == nil || h == to) && h == s.best(h)
	})
	if !ok {
		s.end7("it has not moved within %v", within)
	}
}
