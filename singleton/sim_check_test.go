package singleton_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
)

// This file judges a simulated history, beside testkit.Sim. What is checked, and where:
//
//	I3       no pass after the context was done                               pass
//	I3       a loss is told once                                           onEvent
//	I4       no record goes while work runs under it                       onEvent
//	I7       held again, once, within a bound                               settle
//	record   it says what its owner says, and the user                   checkSaid
//	Props    that hang are told of while they do                              hang
//	state    a planned move to a node that is there brings it along           calm

// records is what was seen of a history.
type records struct {
	parting atomic.Bool // children take a while to stop
	all     map[*testkit.Node][]*singleton.Manager
	hosts   map[*testkit.Node]*childState
	numbers map[string]int
	late    int                   // jobs that were sent to managers on their way out
	made    int                   // times that code which makes children misbehaved, or might have
	slow    map[*testkit.Node]int // times that Props which hang were told of
}

func newRecords() records {
	return records{all: map[*testkit.Node][]*singleton.Manager{}, hosts: map[*testkit.Node]*childState{}, numbers: map[string]int{},
		slow: map[*testkit.Node]int{}}
}

// theLease is the one that all is about.
const theLease = "singleton/x"

// childState is what a node's events say of the child there.
type childState struct {
	token      lease.Token
	live, lost bool
}

// report tells what happened if something failed.
func (s *sim) report() {
	if !s.T.Failed() {
		return
	}
	text := fmt.Sprintf("prefer %v", s.prefer)
	for n := range s.all {
		if m := s.newest(n); m != nil && !ended(m) {
			text += fmt.Sprintf("\n%s %+v", n.ID, m.Status())
		}
	}
	s.Report(text)
}

// observe follows what a node publishes.
func (s *sim) observe(n *testkit.Node) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.hosts[n], s.all[n] = &childState{}, nil
	// In one subscription: when others end theirs, protoactor changes the order of the rest,
	// and one that panics hides the event from those behind it.
	n.System.EventStream.Subscribe(func(evt any) {
		s.hear(n, evt)
		_, ours := evt.(singleton.Event)
		s.Misbehave(evt, ours, func(time.Duration) {}, func(number int) { s.callBack(n, number) })
	})
}

// hear takes up an event of a node.
func (s *sim) hear(n *testkit.Node, evt any) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	switch e := evt.(type) {
	case singleton.Event:
		s.onEvent(n, e)
	case *actor.DeadLetterEvent:
		if e.PID.GetAddress() == "" {
			s.Fail("%s sent %T to nowhere", n.ID, e.Message)
		}
		if s.Letter(n, e) && e.PID.GetAddress() == n.System.Address() && strings.Contains(e.PID.GetId(), "singleton") {
			s.Dead[n]++
		}
	}
}

// onEvent checks I4 and "told once" by what a node says itself.
func (s *sim) onEvent(n *testkit.Node, e singleton.Event) {
	h := s.hosts[n]
	s.Log("%s: event %+v", n.ID, e)
	switch e.Kind {
	case singleton.BecameHost:
		if h.live {
			s.Fail("%s became host under %d with a child under %d", n.ID, e.Token, h.token)
		}
		*h = childState{token: e.Token, live: true}
		delete(s.Yielded, testkit.Hold{On: n, Lease: theLease})
	case singleton.Lost:
		if !h.live || h.lost || h.token != e.Token {
			s.Fail("I3: %s lost token %d: %+v", n.ID, e.Token, *h)
		}
		h.lost = true
	case singleton.Yielded:
		if !h.live || !s.Yields {
			s.Fail("%s yielded: %+v", n.ID, *h)
		}
		s.Yielded[testkit.Hold{On: n, Lease: theLease}] = true
		s.Tally.Moved(0)
	case singleton.NotStarting:
		s.slow[n]++
	case singleton.ChildEnded:
		if !h.live {
			s.Fail("%s: a child ended twice", n.ID)
		}
		h.live = false
	case singleton.HandedOver, singleton.Released:
		if h.live {
			s.Fail("I4: %s gave the lease up (%d) with a child", n.ID, e.Kind)
		}
		s.Tally.Moved(0)
	}
}

func (s *sim) started(n *testkit.Node, m *singleton.Manager) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.all[n] = append(s.all[n], m)
}

// newest is the manager that a node started last, as far as Start has returned: nil before the
// first; under mu.
func (s *sim) newest(n *testkit.Node) *singleton.Manager {
	if all := s.all[n]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// pass is a pass of the gate.
func (s *sim) pass(n *testkit.Node, name string, token lease.Token) {
	s.Pass(n, name, token)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, l := range s.Living[name] {
		if l.On == n && l.Token == token && !l.DoneAt.IsZero() && l.DoneAt.Before(time.Now()) {
			s.Fail("I3: %s: a pass under token %d after its context was done", n.ID, token)
		}
	}
}

// see takes up what becomes of the record; under Mu.
func (s *sim) see(ev store.Event) {
	s.Log("store: %v of token %d, of %s", ev.Kind, ev.Record.Token, ev.Record.Owner.ID)
	if ev.Kind == store.EventPut {
		s.checkSaid(ev.Record)
	}
}

// account checks I6 when all has ended.
func (s *sim) account() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	unconfirmed := 0
	for n, ms := range s.all {
		counted := 0
		for _, m := range ms {
			counted += m.Status().Dropped + m.Status().Undeliverable
			unconfirmed += m.Status().Unconfirmed
		}
		if counted > s.Dead[n] {
			s.Fail("I6: %s counted %d, and had %d dead letters", n.ID, counted, s.Dead[n])
		}
	}
	s.Account(unconfirmed)
}

// count adds up what all managers counted.
func (s *sim) count() (sum testkit.Counts) {
	for _, ms := range s.all {
		for _, m := range ms {
			st := m.Status()
			sum.Unordered += st.Unordered
			sum.Dropped += st.Dropped
			sum.Undeliverable += st.Undeliverable
		}
	}
	return sum
}
