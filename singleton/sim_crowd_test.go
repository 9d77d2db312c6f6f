package singleton_test

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/singleton"
)

// crowded has the singleton move by plan while mail piles up.
func (s *sim) crowded() {
	s.Crowded(testkit.Thrift{Hop: 180, Other: 200, Before: s.jobs, Stay: true, Late: s.polls()}, s.count, func() {
		for range s.R.Each(1 + s.R.IntN(3)) {
			s.Jam()
			s.burst()
			s.chat(s.UpTo(2*time.Second), nil)
			s.shift()
			if s.R.IntN(2) == 0 {
				s.Ease(s.Slots...)
			}
		}
		s.chat(300*time.Millisecond, nil)
	})
}

// chat has all nodes send for d, or until a condition holds.
func (s *sim) chat(d time.Duration, until func() bool) (held bool) {
	return s.Chat(d, func() { sl := s.some(); s.send(sl, sl.sender()+"!") }, until)
}

// burst has nodes send much at once: nothing, or up to some thousands.
func (s *sim) burst() {
	n := int(simulate.Spread(s.R.Float64(), 1, []time.Duration{500, 5000}[s.R.IntN(2)]))
	s.Logf("burst of %d", n)
	from := []*slot{s.some(), s.some()}
	for i := range n {
		sl := from[i%2]
		s.send(sl, sl.sender()+"!")
	}
}

// shift has the singleton move once, by plan, with whatever mail waits.
func (s *sim) shift() {
	// It is done with what it does, stops, a queue goes over a slow link, a stall ends,
	// and where there was no offer a name that is free is looked for.
	within := 2*time.Minute + s.Stop + s.Linger + time.Minute + 8*time.Second + ttl + 15*time.Second
	var h *slot
	if !s.chat(within, func() bool { h = s.active(); return h != nil }) {
		s.Endf("I7: nobody hosts %v after a move", within)
	}
	if s.Follow {
		s.Lead(s.Some(), 5*time.Millisecond)
		s.reached(within, s.Leads)
		return
	}
	// What is under way to a manager that is gone is counted by nobody: so its links
	// are well, and what had begun to travel has arrived. Those of the others need not be.
	s.Ease(h.Slot)
	s.chat(400*time.Millisecond, nil)
	ended := s.leave(h)
	s.Logf("%s leaves", h.ID)
	s.reached(within, nil)
	s.chat(s.UpTo(time.Second), nil)
	for began := time.Now(); ; time.Sleep(time.Second) {
		select {
		case <-ended:
			s.start(h)
			s.reached(within, nil)
			return
		default:
		}
		if time.Since(began) > 15*time.Minute {
			s.Endf("I7: %s does not end", h.ID)
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
func (s *sim) reached(within time.Duration, to *testkit.Slot) {
	ok := s.chat(within, func() bool {
		h := s.active()
		return h != nil && (to == nil || h.Slot == to) && h == s.best(h)
	})
	if !ok {
		s.Endf("I7: it has not moved within %v", within)
	}
}
