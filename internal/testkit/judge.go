package testkit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Sim is one random history, and what was seen of it. What is checked, and where:
//
//	I1, I3   every pass, as it happens: in the order of the tokens of its lease, and
//	         while the store has the record it is by                            Pass
//	I1, I2   an actor begins where and when no other of its id may work         Born
//	I2       a new owner has a new token                                 WatchRecords
//	I3       nothing is handled after the context was done                     Handle
//	I4       no record goes while work runs under it             Witness, WatchRecords
//	I5       nothing lost, doubled or out of order in a calm time               Judge
//	I5       the same in a crowded time, as far as promised; waste    Judge, Thrift
//	I6       every message is handled, or its loss is counted                Account
//	state    what is restored is what the last one left                         Born
type Sim struct {
	T     *testing.T
	Seed  uint64
	R     *simulate.Random
	Store *memory.Store
	Net   *memnet.Net
	Slots []*Slot
	Leads *Slot

	Yields bool          // a lease may be given up under what runs under it
	Small  bool          // buffers are
	Follow bool          // who hosts is for the sources of leadership to say
	Jams   bool          // links get congested
	Rude   bool          // subscribers panic, hang and call back
	Stop   time.Duration // how long actors have to stop
	Toil   time.Duration // a thousandth of what most handlers take at the most, in a crowded time
	Linger time.Duration // beyond the default, how long mail is forwarded

	Good atomic.Bool  // actors do as they are told
	Busy atomic.Int32 // handlers that run

	Mu        sync.Mutex
	trace     []string
	fails     int
	highest   map[string]lease.Token // of all passes so far, by lease
	passes    int
	Lives     []*Life
	latest    map[string]*Life   // by id
	Living    map[string][]*Life // by lease
	Yielded   map[Hold]bool
	Out       map[*Node]bool // crashed, or frozen: no actor there runs
	Dead      map[*Node]int  // letters of what is tested
	Fates     map[Job]*Fate
	last      map[string]int      // the last number that was handled, of a sender in a calm time, by it and id
	disorder  map[string][]string // what came out of order, by lease
	LastCrash time.Time
	LastCut   time.Time // of a link, or a freeze
	Excused   int       // crashes, and freezes begun and ended
	Crowd     bool      // handlers take long, and actors do to stop
	Tally     simulate.Tally
	told      int // events that rude subscribers heard of
}

// Life is one actor under a lease, from Started to Stopped.
type Life struct {
	Number int
	On     *Node
	ID     string
	Shard  int
	Lease  string
	Token  lease.Token
	Guard  interface {
		CheckAlive() bool
		Context() context.Context
	}
	Jobs   int
	Asked  bool // to stop, which it may not do
	Ended  bool
	DoneAt time.Time // when its context was, as far as it is
	State  string    // that it left
	Warm   bool      // it began with one
}

// Hold is a node's hold of a lease.
type Hold struct {
	On    *Node
	Lease string
}

// Fate is what became of a job.
type Fate struct {
	By, ID        string
	Shard         int
	Sent          time.Time
	Handled, Dead int
	Crowd         bool // sent in a crowded time
}

// Counts is what those that are tested counted.
type Counts struct{ Unordered, Dropped, Undeliverable, Crashes int }

// Play runs one history: play on fake time.
func Play(t *testing.T, suite *simulate.Suite, seed uint64, play func(s *Sim)) {
	Bubble(t, func(t *testing.T) {
		play(&Sim{T: t, Seed: seed, R: suite.Random(seed), Store: memory.New(), Net: memnet.New(),
			highest: map[string]lease.Token{}, latest: map[string]*Life{}, Living: map[string][]*Life{}, Yielded: map[Hold]bool{},
			Out: map[*Node]bool{}, Dead: map[*Node]int{}, Fates: map[Job]*Fate{}, last: map[string]int{}, disorder: map[string][]string{}})
	})
}

// Fail reports a broken invariant; under Mu.
func (s *Sim) Fail(format string, args ...any) {
	s.Log("FAILED: "+format, args...)
	if s.fails++; s.fails > 10 {
		return
	}
	s.T.Errorf("seed %d at %v: %s", s.Seed, time.Now().Format("04:05.000"), fmt.Sprintf(format, args...))
}

// Failf is Fail, not under Mu.
func (s *Sim) Failf(format string, args ...any) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Fail(format, args...)
}

// Endf ends a history that would only go on failing.
func (s *Sim) Endf(format string, args ...any) {
	s.Failf(format, args...)
	s.T.FailNow()
}

// Log notes what happened; under Mu.
func (s *Sim) Log(format string, args ...any) {
	s.trace = append(s.trace, time.Now().Format("04:05.000000 ")+fmt.Sprintf(format, args...))
}

// Logf is Log, not under Mu.
func (s *Sim) Logf(format string, args ...any) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Log(format, args...)
}

// Report tells what happened if something failed.
func (s *Sim) Report(settings string) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.T.Logf("seed %d: %d nodes, stop %v, small %v, follow %v, jams %v, yields %v, rude %v, %s\n%s", s.Seed, len(s.Slots), s.Stop,
		s.Small, s.Follow, s.Jams, s.Yields, s.Rude, settings, strings.Join(s.trace, "\n"))
}

// Letter counts a dead letter that is a job's; under Mu.
func (s *Sim) Letter(n *Node, e *actor.DeadLetterEvent) bool {
	j, ok := JobOf(e.Message)
	f := s.Fates[j]
	if !ok || f == nil {
		return false
	}
	f.Dead++
	s.cameTo(f)
	s.Log("%s: dead letter %v to %s", n.ID, j, e.PID)
	return true
}

// Pass checks I1 and I3; under Mu, with what the store has.
func (s *Sim) Pass(n *Node, name string, token lease.Token) {
	recs, err := s.Store.Get(context.Background(), name)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.passes++
	if token < s.highest[name] {
		s.Fail("I1: %s: a pass of %s under token %d after one under %d", n.ID, name, token, s.highest[name])
	}
	s.highest[name] = token
	if err != nil || len(recs) != 1 || recs[0].Token != token || recs[0].Owner.Incarnation != n.Keeper.Owner().Incarnation {
		s.Fail("I3: %s: a pass of %s under token %d while the store has %+v (%v)", n.ID, name, token, recs, err)
	}
}

// Born notes an actor that begins, with a state that it was given or none; it checks I1 and
// I2 as far as actors go, and that the state is what the last one left, all of it.
func (s *Sim) Born(l *Life, restored string) *Life {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	l.Number, l.Warm = len(s.Lives), restored != ""
	for _, x := range s.Living[l.Lease] {
		switch {
		case x.ID != l.ID:
		case x.On == l.On:
			s.Fail("I1: a second %s on %s, under %d and %d", l.ID, l.On.ID, x.Token, l.Token)
		case x.Guard.CheckAlive():
			s.Fail("I1: %s on %s under %d, while it lives on %s under %d", l.ID, l.On.ID, l.Token, x.On.ID, x.Token)
		}
	}
	last := s.latest[l.ID]
	if last != nil && (last.Token > l.Token || last.On != l.On && last.Token == l.Token) {
		s.Fail("I2: %s under token %d after one under %d", l.ID, l.Token, last.Token)
	}
	if l.Warm && (last == nil || !last.Ended || last.State != restored || last.Token >= l.Token) {
		s.Fail("%s on %s began with %q, but the last was %+v", l.ID, l.On.ID, restored, last)
	}
	s.Lives = append(s.Lives, l)
	s.latest[l.ID] = l
	s.Living[l.Lease] = append(s.Living[l.Lease], l)
	context.AfterFunc(l.Guard.Context(), func() {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		l.DoneAt = time.Now()
	})
	return l
}

// Died notes that an actor has ended.
func (s *Sim) Died(l *Life) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	l.Ended = true
	rest := slices.Clone(s.Living[l.Lease])
	s.Living[l.Lease] = slices.DeleteFunc(rest, func(x *Life) bool { return x == l })
}

// Leave is the state that an actor leaves.
func (s *Sim) Leave(l *Life) ([]byte, error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if !l.Ended {
		s.Fail("%s is asked for its state before it ended", l.ID)
	}
	if !s.Good.Load() {
		simulate.Break(s.Odds(10, 51, uint64(l.Number)))
	}
	l.State = fmt.Sprintf("life %d of %s, %d jobs", l.Number, l.ID, l.Jobs)
	return []byte(l.State), nil
}

// Handle notes that an actor took a job.
func (s *Sim) Handle(l *Life, j Job) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if !l.DoneAt.IsZero() && l.DoneAt.Before(time.Now()) {
		s.Fail("I3: %s on %s handled %v after its context was done", l.ID, l.On.ID, j)
	}
	l.Jobs++
	f := s.Fates[j]
	if f == nil {
		return
	}
	f.Handled++
	s.cameTo(f)
	if f.ID != l.ID {
		s.Fail("%v for %s came to %s", j, f.ID, l.ID)
	}
	if j.Sender == "" {
		return
	}
	key := j.Sender + ">" + l.ID
	if j.Number <= s.last[key] {
		s.disorder[l.Lease] = append(s.disorder[l.Lease], fmt.Sprintf("%s got %v after number %d", l.ID, j, s.last[key]))
	}
	s.last[key] = j.Number
}

// Broke notes that a link breaks, or is mended.
func (s *Sim) Broke() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.LastCut = time.Now()
}

// Sent notes that a job is sent to an actor.
func (s *Sim) Sent(j Job, by, id string, shard int) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Fates[j] = &Fate{By: by, ID: id, Shard: shard, Sent: time.Now(), Crowd: s.Crowd}
	if s.Crowd {
		s.Tally.Sent(shard)
	}
}

// Unsent takes that back.
func (s *Sim) Unsent(j Job) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	delete(s.Fates, j)
}

// Account checks I6 when all has ended; unconfirmed is what was counted as sent and not known
// to have arrived. Under Mu.
func (s *Sim) Account(unconfirmed int) {
	lost := 0
	for j, f := range s.Fates {
		crashed, cut := !f.Sent.After(s.LastCrash), !f.Sent.After(s.LastCut)
		switch {
		case f.Handled+f.Dead == 1:
		case f.Handled+f.Dead == 0 && cut:
			lost++
			s.Log("lost: %v, %+v", j, *f)
		case f.Handled+f.Dead == 0 && crashed:
		case f.Handled+f.Dead > 1 && (crashed || cut): // who was handed it could not be reached
		default:
			s.Fail("I6: %v: %+v", j, *f)
		}
	}
	if s.LastCrash.IsZero() && lost > unconfirmed { // on links that broke, or as they did
		s.Fail("I6: %d lost, but only %d counted as sent and not known to have arrived", lost, unconfirmed)
	}
	if s.passes == 0 {
		s.Fail("nothing was ever done")
	}
}

// Judge checks I5 at the end of a calm time, or of a crowded one. Nothing may be handled twice,
// nor lost without being counted. In a calm time nothing is lost at all unless buffers are small,
// and order is given up only where a hosting allows it, and only if that was counted; in a crowded
// one what was not handled was dropped, and order is kept unless a move says that it gave it up.
// Under Mu.
func (s *Sim) Judge(before, after Counts, allows func(lease string) bool) {
	dead, unfit := 0, 0
	for j, f := range s.Fates {
		if s.Crowd && !f.Crowd || j.Sender == "" {
			continue
		}
		dead += f.Dead
		if f.Crowd && s.Unfit(j) {
			unfit++
		}
		if f.Handled+f.Dead != 1 || f.Dead > 0 && !s.Small && !s.Crowd {
			s.Fail("I5: %v: %+v", j, *f)
		}
	}
	unordered := after.Unordered != before.Unordered
	for name, what := range s.disorder {
		if !unordered || !s.Crowd && !allows(name) {
			s.Fail("I5: %v", what)
		}
	}
	dropped, refused := after.Dropped-before.Dropped, after.Undeliverable-before.Undeliverable
	if dead != dropped+refused || refused > unfit || after.Crashes != before.Crashes {
		s.Fail("I6: %d dead letters, %d dropped, %d undeliverable, %d of them rightly, %d crashes", dead, dropped, refused, unfit, after.Crashes-before.Crashes)
	}
}

// Witness is the store's own view of what is given up.
type Witness struct {
	*memory.Store
	Sim *Sim
	Way interface { // to the store, for claims
		Acquire(context.Context, store.Session, []store.Claim) ([]store.Outcome, error)
	}
}

// Release implements store.Store.
func (w Witness) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	outs, err := w.Store.Release(ctx, held)
	for i, o := range outs {
		w.Sim.given(o.OK, held[i].Name, held[i].Token, "released")
	}
	return outs, err
}

// Transfer implements store.Transferrer.
func (w Witness) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	outs, err := w.Store.Transfer(ctx, moves)
	for i, o := range outs {
		w.Sim.given(o.OK, moves[i].Name, moves[i].Token, "transferred")
	}
	return outs, err
}

// Acquire implements store.Store.
func (w Witness) Acquire(ctx context.Context, own store.Session, claims []store.Claim) ([]store.Outcome, error) {
	outs, err := w.Way.Acquire(ctx, own, claims)
	for i, o := range outs {
		w.Sim.given(o.OK, claims[i].Name, claims[i].Supersedes, "superseded")
	}
	return outs, err
}

// given checks I4: no node gives a record up while work under it still runs. Only
// ReleaseAfterTTL may, a TTL after that work was shut off, by the fastest clock: the event that
// says so may come later.
func (s *Sim) given(is bool, name string, token lease.Token, how string) {
	if !is || token == 0 {
		return
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, l := range s.Living[name] {
		shutOff := s.Yields && !l.DoneAt.IsZero() && time.Since(l.DoneAt) >= TTL*9/10
		if l.Token == token && !s.Yielded[Hold{l.On, name}] && !shutOff {
			s.Fail("I4: token %d of %s was %s while %s ran on %s", token, name, how, l.ID, l.On.ID)
		}
	}
}

// WatchRecords checks I2, and I4 for records that expire. It calls see, under Mu.
func (s *Sim) WatchRecords(ctx context.Context, prefix string, see func(store.Event)) {
	type standing struct {
		token, highest lease.Token
		owner          string
	}
	all := map[string]*standing{}
	for ev, err := range s.Store.Watch(ctx, store.Scope{Prefix: prefix}) {
		if err != nil {
			return
		}
		if ev.Kind == store.EventSynced {
			continue
		}
		name, rec := ev.Record.Name, ev.Record
		st := all[name]
		if st == nil {
			st = &standing{}
			all[name] = st
		}
		s.Mu.Lock()
		see(ev)
		gone := st.token
		if st.token = 0; ev.Kind == store.EventPut {
			if rec.Owner.Incarnation != st.owner && rec.Token <= st.highest {
				s.Fail("I2: token %d of %s for %s after %d", rec.Token, name, rec.Owner.ID, st.highest)
			}
			st.token, st.owner = rec.Token, rec.Owner.Incarnation
			st.highest = max(st.highest, st.token)
		}
		for _, l := range s.Living[name] {
			if gone != 0 && gone != st.token && l.Token == gone && !s.Out[l.On] && l.Guard.Context().Err() == nil {
				s.Fail("I4: token %d of %s went while %s ran on %s by right", gone, name, l.ID, l.On.ID)
			}
		}
		s.Mu.Unlock()
	}
}

// Waits reports whether handlers run yet, when all that was on its way has arrived.
func (s *Sim) Waits() bool {
	time.Sleep(5 * time.Second) // longer than any link, or crossing, takes
	synctest.Wait()
	return s.Busy.Load() > 0
}
