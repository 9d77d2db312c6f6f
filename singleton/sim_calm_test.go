package singleton_test

import (
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/singleton"
)

// bound is how long it may take after all trouble until one node hosts (I7): a
// child is done with what it does, a manager with what it forwards (who is to host may
// be one that was leaving; it looks after each half of its time whether it gets on), a
// lease runs out, and who waits for it looks at the latest after the poll maximum.
func (s *sim) bound() time.Duration {
	return longest + s.within + time.Second + s.linger*3/2 + ttl + 10*time.Second + 15*time.Second
}

// settle checks I7.
func (s *sim) settle() {
	began := time.Now()
	for !s.stable() {
		if time.Since(began) > s.bound() {
			s.end7("not held once, by who is to, %v after all trouble", s.bound())
		}
		time.Sleep(20 * time.Millisecond)
		for _, sl := range s.slots {
			s.start(sl)
		}
	}
	s.logf("stable after %v", time.Since(began))
	// What was late on its way to the store and from it has arrived, and watches
	// that fell silent were begun anew.
	time.Sleep(3*ttl + 2*time.Second)
	if !s.stable() {
		s.end7("it does not stay where it is")
	}
	s.checkAgreement()
}

// end7 ends a history that would only go on failing.
func (s *sim) end7(format string, args ...any) {
	s.mu.Lock()
	s.fail("I7: "+format, args...)
	s.mu.Unlock()
	s.t.FailNow()
}

// host returns who hosts, if one does and the others know, and all is delivered. Its
// Status alone does not tell: while a manager waits for a subscriber, which it does for a
// moment, it says what was before.
func (s *sim) host() (host *slot) {
	synctest.Wait()
	for _, sl := range s.slots {
		if sl.serves() && sl.m.Status().Phase == singleton.Active {
			if host != nil {
				return nil
			}
			host = sl
		}
	}
	if host == nil || !s.runs(host) {
		return nil
	}
	for _, sl := range s.slots {
		if !sl.serves() {
			return nil
		}
		st := sl.m.Status()
		if st.Host != host.owner() || st.Buffered > 0 || sl != host && st.Phase != singleton.Standby {
			return nil
		}
	}
	return host
}

// runs reports whether a child runs on a slot, by right.
func (s *sim) runs(sl *slot) bool {
	token := sl.m.Status().Token
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.lives, func(l *simLife) bool {
		return l.on == sl.n && l.token == token && !l.ended && l.doneAt.IsZero()
	})
}

// stable reports whether who is to host does, and nothing is going on.
func (s *sim) stable() bool {
	h := s.host()
	return h != nil && s.busy.Load() == 0 && (!s.follow || h == s.leads) && h == s.best(h)
}

// best is who is preferred to all that serve; h if there is nobody better.
func (s *sim) best(h *slot) *slot {
	for _, id := range s.prefer {
		if h.id == id {
			return h
		}
		for _, sl := range s.slots {
			if sl.id == id && sl.serves() {
				return sl
			}
		}
	}
	return h
}

// calm has the singleton move by plan under steady traffic, and checks I5.
func (s *sim) calm() {
	for _, a := range s.slots {
		for _, b := range s.slots {
			if a != b {
				s.c.net.SetDelay(a.id+":1", b.id+":1", s.upTo(2*time.Millisecond))
			}
		}
	}
	if s.odds(2, 50) == 0 {
		s.blink()
	}
	s.mu.Lock()
	before, lives, first := s.count(), len(s.lives), len(s.order)
	s.mu.Unlock()
	for range 2 + s.r.IntN(3) {
		if !s.r.Step() {
			continue
		}
		s.traffic(50*time.Millisecond+s.upTo(150*time.Millisecond), nil)
		s.move()
	}
	s.traffic(300*time.Millisecond, nil)
	time.Sleep(3 * time.Second)
	synctest.Wait()

	s.mu.Lock()
	defer s.mu.Unlock()
	after := s.count()
	last := map[string]int{}
	for _, j := range s.order[first:] {
		if j.Sender == "" {
			continue // from before
		}
		if j.Number <= last[j.Sender] {
			s.fail("I5: %v after number %d", j, last[j.Sender])
		}
		last[j.Sender] = j.Number
	}
	dead, wrong := 0, 0
	for j, f := range s.fates {
		if j.Sender == "" {
			continue
		}
		dead += f.dead
		if f.handled+f.dead != 1 || f.dead > 0 && !s.small {
			if wrong++; wrong > 5 {
				continue
			}
			s.fail("I5: %v, sent at %v: %+v", j, f.sent.Format("04:05.000000"), *f)
		}
	}
	if dead != after.Dropped-before.Dropped {
		s.fail("I6: %d dropped, %d counted", dead, after.Dropped-before.Dropped)
	}
	if after.Unordered != before.Unordered {
		s.fail("I5: %d moves gave order up", after.Unordered-before.Unordered)
	}
	for _, l := range s.lives[lives:] {
		if !l.warm {
			s.fail("child %d began cold on %s, though it was moved by plan to a node that was there", l.id, l.on.id)
		}
	}
	s.log("calm: %d lives", len(s.lives)-lives)
}

// blink breaks the host's links for a moment, while it stays: what it knows of the others is
// to outlast that.
func (s *sim) blink() {
	h := s.host()
	if h == nil {
		return
	}
	s.logf("links of %s blink", h.id)
	for _, sl := range s.slots {
		if sl != h {
			s.c.net.Cut(h.id+":1", sl.id+":1")
			s.c.net.Heal(h.id+":1", sl.id+":1")
		}
	}
	s.broke()
	time.Sleep(3 * time.Second)
}

// traffic has all nodes send for d, or until a condition holds.
func (s *sim) traffic(d time.Duration, until func() bool) (held bool) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(s.upTo(3 * time.Millisecond)) {
		sl := s.some()
		s.send(sl, sl.sender())
		if until != nil && until() {
			return true
		}
	}
	return until == nil
}

// move has the singleton move once, by plan.
func (s *sim) move() {
	const within = 20 * time.Second
	h := s.host()
	if h == nil { // mail is on its way
		if !s.traffic(within, func() bool { h = s.host(); return h != nil }) {
			s.end7("mail does not get through")
		}
	}
	if s.follow {
		s.lead(s.some(), 5*time.Millisecond)
		s.moved(within, s.leads)
		return
	}
	ended := s.leave(h)
	s.moved(within, nil)
	select {
	case <-ended:
	case <-time.After(within):
	}
	s.traffic(50*time.Millisecond+s.upTo(50*time.Millisecond), nil)
	s.start(h)
	s.moved(within, nil)
}

// moved waits until it is where it is to be.
func (s *sim) moved(within time.Duration, to *slot) {
	ok := s.traffic(within, func() bool {
		i := slices.IndexFunc(s.slots, func(sl *slot) bool {
			return sl.serves() && sl.m.Status().Phase == singleton.Active
		})
		return i >= 0 && (to == nil || s.slots[i] == to) && s.slots[i] == s.best(s.slots[i])
	})
	if !ok {
		s.end7("it has not moved within %v", within)
	}
}

// stopSending ends a manager that its node goes on to send to.
func (s *sim) stopSending(sl *slot) error {
	var sender sync.WaitGroup
	sender.Go(func() {
		for ; !ended(sl.m); time.Sleep(50 * time.Millisecond) {
			s.mu.Lock()
			s.late++
			j := job{Number: 2_000_000 + s.late}
			s.fates[j] = &fate{sent: time.Now()}
			s.mu.Unlock()
			sl.n.system.Root.Send(sl.m.PID(), j)
		}
	})
	err := sl.m.Stop(s.t.Context())
	sender.Wait()
	return err
}

// part takes a while at the end of the history: mail comes meanwhile.
func (s *sim) part() {
	if s.parting.Load() {
		time.Sleep(200 * time.Millisecond)
	}
}

// stopAll ends all managers, and checks that nothing is held for nobody.
func (s *sim) stopAll() {
	s.parting.Store(true)
	within := 3*time.Second + time.Duration(len(s.slots)+1)*time.Second // each that does not answer is asked for a second
	frozen := -1                                                        // whose store is, as it is told to stop
	if s.odds(3, 34) == 0 {
		frozen = s.odds(len(s.slots), 35)
	}
	for i, sl := range s.slots {
		held := false
		if i == frozen {
			s.logf("%s has no store", sl.id)
			held = sl.m.Status().Phase == singleton.Active
			sl.n.store.Partition()
		}
		began := time.Now()
		err := s.stopSending(sl)
		s.logf("%s has ended: %v", sl.id, err)
		switch recs, gerr := s.c.store.Get(s.t.Context(), "singleton/x"); {
		case gerr != nil:
			s.t.Error(gerr)
		case err == nil && len(recs) > 0 && recs[0].Owner == sl.owner():
			s.t.Errorf("seed %d: %s has stopped, nothing is said of %+v", s.seed, sl.id, recs[0])
		case held && err == nil, i != frozen && err != nil:
			s.t.Errorf("seed %d: %s, whose store is frozen: %v, hosted: %v, says %v", s.seed, sl.id, i == frozen, held, err)
		case i == len(s.slots)-1 && frozen < 0 && time.Since(began) > within:
			s.t.Errorf("seed %d: the last node took %v to stop", s.seed, time.Since(began))
		}
		sl.n.store.Heal()
	}
	synctest.Wait()
	time.Sleep(2 * ttl)
	for rec, err := range s.c.store.List(s.t.Context(), "singleton/x") {
		require.NoError(s.t, err)
		s.t.Errorf("seed %d: %+v is held for nobody", s.seed, rec)
	}
}
