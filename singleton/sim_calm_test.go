package singleton_test

import (
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
)

// bound is how long it may take after all trouble until one node hosts (I7): a
// child is done with what it does, a manager with what it forwards (who is to host may
// be one that was leaving; it looks after each half of its time whether it gets on), a
// lease runs out, and who waits for it looks at the latest after the poll maximum.
func (s *sim) bound() time.Duration {
	rest := time.Duration(0) // of a node whose children failed
	if s.breaks() {
		rest = time.Minute
	}
	return longest + s.Stop + time.Second + s.Linger*3/2 + ttl + 10*time.Second + 15*time.Second + rest
}

// settle checks I7.
func (s *sim) settle() {
	began := time.Now()
	for !s.stable() {
		if time.Since(began) > s.bound() {
			s.Endf("I7: not held once, by who is to, %v after all trouble", s.bound())
		}
		time.Sleep(20 * time.Millisecond)
		for _, sl := range s.slots {
			s.start(sl)
		}
	}
	s.Logf("stable after %v", time.Since(began))
	// What was late on its way to the store and from it has arrived, and watches
	// that fell silent were begun anew.
	time.Sleep(3*ttl + 2*time.Second)
	if !s.stable() {
		s.Endf("I7: it does not stay where it is")
	}
	s.checkAgreement()
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
		if st.Host != host.Owner() || st.Buffered > 0 || sl != host && st.Phase != singleton.Standby {
			return nil
		}
	}
	return host
}

// runs reports whether a child runs on a slot, by right.
func (s *sim) runs(sl *slot) bool {
	token := sl.m.Status().Token
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return slices.ContainsFunc(s.Living[theLease], func(l *testkit.Life) bool {
		return l.On == sl.On && l.Token == token && l.DoneAt.IsZero()
	})
}

// stable reports whether who is to host does, and nothing is going on.
func (s *sim) stable() bool {
	h := s.host()
	return h != nil && s.Busy.Load() == 0 && (!s.Follow || h.Slot == s.Leads) && h == s.best(h)
}

// best is who is preferred to all that serve; h if there is nobody better.
func (s *sim) best(h *slot) *slot {
	for _, id := range s.prefer {
		if h.ID == id {
			return h
		}
		for _, sl := range s.slots {
			if sl.ID == id && sl.serves() {
				return sl
			}
		}
	}
	return h
}

// calm has the singleton move by plan under steady traffic, and checks I5.
func (s *sim) calm() {
	s.DelayLinks(2 * time.Millisecond)
	if s.Odds(2, 50) == 0 {
		s.blink()
	}
	s.Mu.Lock()
	before, lives := s.count(), len(s.Lives)
	s.Mu.Unlock()
	for range s.R.Each(2 + s.R.IntN(3)) {
		s.traffic(50*time.Millisecond+s.UpTo(150*time.Millisecond), nil)
		s.move()
	}
	s.traffic(300*time.Millisecond, nil)
	time.Sleep(3 * time.Second)
	synctest.Wait()

	s.Mu.Lock()
	defer s.Mu.Unlock()
	after := s.count()
	s.Judge(before, after, func(string) bool { return false })
	if after.Unordered != before.Unordered {
		s.Fail("I5: %d moves gave order up", after.Unordered-before.Unordered)
	}
	for _, l := range s.Lives[lives:] {
		if !l.Warm {
			s.Fail("child %d began cold on %s, though it was moved by plan to a node that was there", l.Number, l.On.ID)
		}
	}
	s.Log("calm: %d lives", len(s.Lives)-lives)
}

// blink breaks the host's links for a moment, while it stays: what it knows of the others is
// to outlast that.
func (s *sim) blink() {
	h := s.host()
	if h == nil {
		return
	}
	s.Logf("links of %s blink", h.ID)
	for _, sl := range s.slots {
		if sl != h {
			s.Net.Cut(h.Address(), sl.Address())
			s.Net.Heal(h.Address(), sl.Address())
		}
	}
	s.Broke()
	time.Sleep(3 * time.Second)
}

// traffic has all nodes send for d, or until a condition holds.
func (s *sim) traffic(d time.Duration, until func() bool) (held bool) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(s.UpTo(3 * time.Millisecond)) {
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
			s.Endf("I7: mail does not get through")
		}
	}
	if s.Follow {
		s.Lead(s.Some(), 5*time.Millisecond)
		s.moved(within, s.Leads)
		return
	}
	ended := s.leave(h)
	s.moved(within, nil)
	select {
	case <-ended:
	case <-time.After(within):
	}
	s.traffic(50*time.Millisecond+s.UpTo(50*time.Millisecond), nil)
	s.start(h)
	s.moved(within, nil)
}

// moved waits until it is where it is to be.
func (s *sim) moved(within time.Duration, to *testkit.Slot) {
	ok := s.traffic(within, func() bool {
		i := slices.IndexFunc(s.slots, func(sl *slot) bool {
			return sl.serves() && sl.m.Status().Phase == singleton.Active
		})
		return i >= 0 && (to == nil || s.slots[i].Slot == to) && s.slots[i] == s.best(s.slots[i])
	})
	if !ok {
		s.Endf("I7: it has not moved within %v", within)
	}
}

// stopSending ends a manager that its node goes on to send to.
func (s *sim) stopSending(sl *slot) error {
	var sender sync.WaitGroup
	sender.Go(func() {
		for ; !ended(sl.m); time.Sleep(50 * time.Millisecond) {
			s.Mu.Lock()
			s.late++
			j := testkit.Job{Number: 2_000_000 + s.late}
			s.Mu.Unlock()
			s.sent(sl.ID, j)
			sl.On.System.Root.Send(sl.m.PID(), j)
		}
	})
	err := sl.m.Stop(s.T.Context())
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
	if s.Odds(3, 34) == 0 {
		frozen = s.Odds(len(s.slots), 35)
	}
	for i, sl := range s.slots {
		held := false
		if i == frozen {
			s.Logf("%s has no store", sl.ID)
			held = sl.m.Status().Phase == singleton.Active
			sl.On.Store.Partition()
		}
		began := time.Now()
		err := s.stopSending(sl)
		s.Logf("%s has ended: %v", sl.ID, err)
		switch recs, gerr := s.Store.Get(s.T.Context(), theLease); {
		case gerr != nil:
			s.T.Error(gerr)
		case err == nil && len(recs) > 0 && recs[0].Owner == sl.Owner():
			s.T.Errorf("seed %d: %s has stopped, nothing is said of %+v", s.Seed, sl.ID, recs[0])
		case held && err == nil, i != frozen && err != nil:
			s.T.Errorf("seed %d: %s, whose store is frozen: %v, hosted: %v, says %v", s.Seed, sl.ID, i == frozen, held, err)
		case i == len(s.slots)-1 && frozen < 0 && time.Since(began) > within:
			s.T.Errorf("seed %d: the last node took %v to stop", s.Seed, time.Since(began))
		}
		sl.On.Store.Heal()
	}
	synctest.Wait()
	time.Sleep(2 * ttl)
	for rec, err := range s.Store.List(s.T.Context(), store.Query{Prefix: theLease}) {
		require.NoError(s.T, err)
		s.T.Errorf("seed %d: %+v is held for nobody", s.Seed, rec)
	}
}
