package singleton_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
)

// This file judges a simulated history. What is checked, and where:
//
//	I1, I3   every pass, as it happens: in the order of the tokens, while the store
//	         has the record it is by, and never after the context was done    pass
//	I2       a new owner has a new token                              watchRecords
//	I3       a loss is told once                                           onEvent
//	I4       no record goes while work runs under it     witness, onEvent, watchRecords
//	I5       nothing lost, doubled or out of order in a calm time             calm
//	I5       the same in a crowded time, as far as promised; waste        crowded
//	I6       every message is handled, or its loss is counted              account
//	I7       held again, once, within a bound                               settle
//	record   it says what its owner says, and the user           checkSaid
//	Props    that hang are told of while they do                              hang
//	state    what is restored is what the last child left                     born
//	state    a planned move to a node that is there brings it along           calm

// records is what was seen of a history.
type records struct {
	good    atomic.Bool  // children do as they are told
	busy    atomic.Int32 // handlers that run
	parting atomic.Bool  // children take a while to stop
	yields  bool         // a child may be left behind

	mu        sync.Mutex
	failed    bool
	trace     []string
	highest   lease.Token // of all passes so far
	passes    int
	lives     []*simLife
	all       map[*node][]*singleton.Manager
	hosts     map[*node]*childState
	out       map[*node]bool // crashed, or frozen: nobody there can act
	dead      map[*node]int  // letters of its managers
	fates     map[job]*fate
	order     []job // as they were handled
	numbers   map[string]int
	lastCrash time.Time     // the last one
	lastCut   time.Time     // of a link, or a freeze: the last one
	warm      int           // children that began with a state
	crowd     bool          // handlers take long, and children do to stop
	late      int           // jobs that were sent to managers on their way out
	told      int           // events that subscribers had a hand in
	made      int           // times that code which makes children misbehaved, or might have
	slow      map[*node]int // times that Props which hang were told of
	excused   int           // crashes, and freezes begun and ended
	tally     simulate.Tally
}

// fate is what became of a job.
type fate struct {
	sent          time.Time
	handled, dead int
	crowd         bool // sent in a crowded time
}

// childState is what a node's events say of the child there.
type childState struct {
	token               lease.Token
	live, lost, yielded bool
}

// fail reports a broken invariant; under mu.
func (s *sim) fail(format string, args ...any) {
	s.failed = true
	s.t.Errorf("seed %d at %v: %s", s.seed, time.Now().Format("04:05.000"), fmt.Sprintf(format, args...))
	s.log("FAILED: "+format, args...)
}

func (s *sim) log(format string, args ...any) {
	s.trace = append(s.trace, time.Now().Format("04:05.000000 ")+fmt.Sprintf(format, args...))
}

func (s *sim) logf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log(format, args...)
}

// report tells what happened if something failed.
func (s *sim) report() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.t.Failed() {
		leads := ""
		if s.leads != nil {
			leads = s.leads.id
		}
		s.t.Logf("seed %d: follow %v (at last %s) prefer %v small %v yields %v\n%s%s", s.seed, s.follow, leads, s.prefer, s.small, s.yields,
			strings.Join(s.trace, "\n"), s.c.statuses())
	}
}

// observe follows what a node publishes.
func (s *sim) observe(sl *slot) {
	n, self := sl.n, sl.n.system.Address()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all, s.hosts, s.out = map[*node][]*singleton.Manager{}, map[*node]*childState{}, map[*node]bool{}
		s.dead, s.fates, s.numbers, s.slow = map[*node]int{}, map[job]*fate{}, map[string]int{}, map[*node]int{}
	}
	s.hosts[n], s.all[n] = &childState{}, nil
	// In one subscription: when others end theirs, protoactor changes the order of the rest,
	// and one that panics hides the event from those behind it.
	n.system.EventStream.Subscribe(func(evt any) {
		s.hear(n, self, evt)
		if s.rude {
			s.misbehave(sl, n, evt)
		}
	})
}

// hear takes up an event of a node, whose address is self.
func (s *sim) hear(n *node, self string, evt any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := evt.(type) {
	case singleton.Event:
		s.onEvent(n, e)
	case *actor.DeadLetterEvent:
		if e.PID.GetAddress() == "" {
			s.fail("%s sent %T to nowhere", n.id, e.Message)
		}
		if j, ok := jobOf(e.Message); ok && s.fates[j] != nil {
			s.fates[j].dead++
			s.cameTo(s.fates[j])
			s.log("%s: dead letter %v to %s", n.id, j, e.PID)
			if e.PID.GetAddress() == self && strings.Contains(e.PID.GetId(), "singleton") {
				s.dead[n]++
			}
		}
	}
}

// onEvent checks I4 and "told once" by what a node says itself.
func (s *sim) onEvent(n *node, e singleton.Event) {
	h := s.hosts[n]
	s.log("%s: event %+v", n.id, e)
	switch e.Kind {
	case singleton.BecameHost:
		if h.live {
			s.fail("%s became host under %d with a child under %d", n.id, e.Token, h.token)
		}
		*h = childState{token: e.Token, live: true}
	case singleton.Lost:
		if !h.live || h.lost || h.token != e.Token {
			s.fail("I3: %s lost token %d: %+v", n.id, e.Token, *h)
		}
		h.lost = true
	case singleton.Yielded:
		if !h.live || !s.yields {
			s.fail("%s yielded: %+v", n.id, *h)
		}
		h.yielded = true
		s.tally.Moved(0)
	case singleton.NotStarting:
		s.slow[n]++
	case singleton.ChildEnded:
		if !h.live {
			s.fail("%s: a child ended twice", n.id)
		}
		h.live = false
	case singleton.HandedOver, singleton.Released:
		if h.live {
			s.fail("I4: %s gave the lease up (%d) with a child", n.id, e.Kind)
		}
		s.tally.Moved(0)
	}
}

// pass checks I1 and I3.
func (s *sim) pass(n *node, token lease.Token) {
	recs, err := s.c.store.Get(context.Background(), "singleton/x")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passes++
	if token < s.highest {
		s.fail("I1: %s: a pass under token %d after one under %d", n.id, token, s.highest)
	}
	s.highest = token
	if err != nil || len(recs) != 1 || recs[0].Token != token || recs[0].Owner.Incarnation != n.keeper.Owner().Incarnation {
		s.fail("I3: %s: a pass under token %d while the store has %+v (%v)", n.id, token, recs, err)
	}
	for _, l := range s.lives {
		if l.on == n && l.token == token && !l.ended && !l.doneAt.IsZero() && l.doneAt.Before(time.Now()) {
			s.fail("I3: %s: a pass under token %d after its context was done", n.id, token)
		}
	}
}

// witness is the store's own view of what is given up.
type witness struct {
	dialect
	s *sim
}

func (w witness) Release(ctx context.Context, held []lease.Held) ([]lease.Outcome, error) {
	outs, err := w.Store.Release(ctx, held)
	for i, o := range outs {
		w.s.gone(o.OK, held[i].Token, "released")
	}
	return outs, err
}

func (w witness) Transfer(ctx context.Context, moves []lease.Transfer) ([]lease.Outcome, error) {
	outs, err := w.Store.Transfer(ctx, moves)
	for i, o := range outs {
		w.s.gone(o.OK, moves[i].Token, "transferred")
	}
	return outs, err
}

func (w witness) Acquire(ctx context.Context, own lease.Session, claims []lease.Claim) ([]lease.Outcome, error) {
	outs, err := w.dialect.Acquire(ctx, own, claims)
	for i, o := range outs {
		w.s.gone(o.OK, claims[i].Supersedes, "superseded")
	}
	return outs, err
}

// gone checks I4: nobody gives a record up under work that still runs, by right or
// not. Only Yield may.
func (s *sim) gone(is bool, token lease.Token, how string) {
	if !is || token == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log("store: token %d %s", token, how)
	for _, l := range s.lives {
		if l.token == token && !l.ended && !s.hosts[l.on].yielded && !s.shutOff(l) {
			s.fail("I4: token %d was %s while its child ran on %s", token, how, l.on.id)
		}
	}
}

// shutOff reports whether a child that may be left behind was shut off a TTL ago, by the
// fastest clock: its node's event that says so may come later.
func (s *sim) shutOff(l *simLife) bool {
	return s.yields && !l.doneAt.IsZero() && time.Since(l.doneAt) >= ttl*9/10
}

// watchRecords checks I2, and I4 for records that expire.
func (s *sim) watchRecords(ctx context.Context) {
	var standing, highest lease.Token
	var owner string
	for ev, err := range s.c.store.Watch(ctx, "singleton/x") {
		if err != nil {
			return
		}
		s.mu.Lock()
		gone := standing
		switch ev.Kind {
		case lease.EventPut:
			s.log("store: token %d to %s", ev.Record.Token, ev.Record.Owner.ID)
			if ev.Record.Owner.Incarnation != owner && ev.Record.Token <= highest {
				s.fail("I2: token %d of %s after %d", ev.Record.Token, ev.Record.Owner.ID, highest)
			}
			s.checkSaid(ev.Record)
			standing, owner = ev.Record.Token, ev.Record.Owner.Incarnation
			highest = max(highest, standing)
		case lease.EventDelete:
			s.log("store: deleted")
			standing = 0
		}
		for _, l := range s.lives {
			if gone != 0 && gone != standing && l.token == gone && !l.ended && l.g.Context().Err() == nil && !s.out[l.on] {
				s.fail("I4: token %d went while its child ran on %s by right", gone, l.on.id)
			}
		}
		s.mu.Unlock()
	}
}

func (s *sim) broke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastCut = time.Now()
}

func (s *sim) crashed(n *node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out[n], s.lastCrash = true, time.Now()
	s.excused++
}

func (s *sim) excuse(n *node, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out[n], s.lastCut = on, time.Now()
	s.excused++
}

func (s *sim) started(n *node, m *singleton.Manager) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[n] = append(s.all[n], m)
}

// newest is the manager that a node started last, as far as Start has returned: nil before the
// first; under mu.
func (s *sim) newest(n *node) *singleton.Manager {
	if all := s.all[n]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

func (s *sim) next(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbers[name]++
	return s.numbers[name]
}

func (s *sim) sent(j job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fates[j] = &fate{sent: time.Now()}
}

// account checks I6 when all has ended.
func (s *sim) account() {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost, unconfirmed := 0, 0
	for j, f := range s.fates {
		crashed, cut := !f.sent.After(s.lastCrash), !f.sent.After(s.lastCut)
		switch {
		case f.handled+f.dead == 1:
		case f.handled+f.dead == 0 && cut:
			lost++
			s.log("lost: %v, sent at %v", j, f.sent.Format("04:05.000000"))
			fallthrough
		case f.handled+f.dead == 0 && crashed:
		case f.handled+f.dead > 1 && (crashed || cut): // who was handed it could not be reached
		default:
			s.fail("I6: %v, sent at %v: %+v", j, f.sent.Format("04:05.000000"), *f)
		}
	}
	for n, ms := range s.all {
		counted := 0
		for _, m := range ms {
			counted += m.Status().Dropped + m.Status().Undeliverable
			unconfirmed += m.Status().Unconfirmed
		}
		if counted > s.dead[n] {
			s.fail("I6: %s counted %d, and had %d dead letters", n.id, counted, s.dead[n])
		}
	}
	if s.lastCrash.IsZero() && lost > unconfirmed { // on links that broke, or as they did
		s.fail("I6: %d lost, but only %d counted as sent and not known to have arrived", lost, unconfirmed)
	}
	if s.passes == 0 {
		s.fail("nothing was ever done")
	}
}

// count adds up what all managers counted.
func (s *sim) count() (sum singleton.Status) {
	for _, ms := range s.all {
		for _, m := range ms {
			st := m.Status()
			sum.Unordered += st.Unordered
			sum.Dropped += st.Dropped
			sum.Undeliverable += st.Undeliverable
			sum.Buffered += st.Buffered
		}
	}
	return sum
}

var _ = require.NoError
