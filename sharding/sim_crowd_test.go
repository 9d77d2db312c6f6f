package sharding_test

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/internal/testkit"
)

// crowded has shards move by plan while mail piles up.
func (s *sim) crowded(moves int) {
	s.Crowded(testkit.Thrift{Hop: 250, Move: 256, Other: 1000, Before: s.jobs}, s.count, func() {
		for range s.R.Each(moves) {
			s.Jam()
			s.burst()
			s.chat(s.UpTo(2 * time.Second))
			s.shift()
			if s.R.IntN(3) == 0 {
				s.chat(s.UpTo(100 * time.Millisecond))
				s.shift()
			}
			s.arrive("planned moves")
			if s.R.IntN(2) == 0 {
				s.Ease(s.Slots...)
			}
		}
		for _, sl := range s.slots {
			s.restart(sl)
			s.drain(sl, false)
		}
		s.arrive("the last planned moves")
		s.chat(300 * time.Millisecond)
	})
}

// chat has all nodes send for d.
func (s *sim) chat(d time.Duration) { s.Chat(d, func() { s.tell(s.some(), s.id()) }, nil) }

// tell has a node send the next job of a crowded time.
func (s *sim) tell(sl *slot, id string) {
	if !sl.serves() {
		return
	}
	s.jobs++
	j := testkit.Job{Sender: fmt.Sprintf("%s.%d", sl.ID, sl.Lives), Number: s.jobs}
	s.tellJob(sl, id, j, s.Dress(j))
}

// burst has a node send much at once: nothing, or up to some thousands.
func (s *sim) burst() {
	n := int(simulate.Spread(s.R.Float64(), 1, []time.Duration{300, 3000}[s.R.IntN(2)]))
	sl, ids := s.some(), []string{s.id(), s.id(), s.id()}
	s.Logf("burst of %d from %s to %v", n, sl.ID, ids)
	for i := range n {
		s.tell(sl, ids[i%len(ids)])
	}
}

// shift does one planned thing, with whatever mail waits.
func (s *sim) shift() {
	sl := s.some()
	spare := len(s.which((*slot).hosts)) > 1 || !sl.hosts()
	switch what := s.R.IntN(6); {
	case sl.Gone:
		s.restart(sl)
	case sl.left != nil:
	case what <= 1 && spare:
		if s.Follow && sl.Slot == s.Leads {
			others := s.which(func(x *slot) bool { return x != sl && x.hosts() })
			s.Lead(others[s.R.IntN(len(others))].Slot, 5*time.Millisecond)
		}
		// What is under way to a process that is gone is counted by nobody: so its links
		// are well. Those of the others need not be.
		s.Ease(sl.Slot)
		s.leave(sl)
	case what == 2 && s.Follow:
		s.Lead(sl.Slot, 5*time.Millisecond)
	case sl.drained || spare:
		s.drain(sl, !sl.drained)
	}
}

// arrive waits until all is where it is to be.
func (s *sim) arrive(what string) {
	// An entity is done with what it does, stops, a queue goes over a slow link, a stall
	// ends, an order is given anew, and who leaves is done with what it forwards.
	within := 4*time.Minute + 2*s.Stop + s.Linger + time.Minute + ttl
	for began, pause := time.Now(), 20*time.Millisecond; ; pause = min(pause*5/4, 2*time.Second) {
		s.poll()
		leaving := s.which(func(sl *slot) bool { return sl.left != nil })
		why := s.unsettled(false)
		if why == "" && len(leaving) == 0 {
			s.Logf("%s took %v", what, time.Since(began))
			return
		}
		if time.Since(began) > within {
			s.Endf("%s took more than %v: %s, %d are leaving", what, within, why, len(leaving))
		}
		time.Sleep(pause)
		s.tell(s.some(), s.id())
	}
}
