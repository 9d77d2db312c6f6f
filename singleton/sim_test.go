package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
)

var histories = simulate.New("singleton", 40, 1500)

// TestSimulation runs random histories of a singleton on a few nodes: trouble of
// all kinds, a calm time in which it moves by plan, trouble again. In every other
// one the links get congested, and the calm time is a crowded one. testkit.Sim and
// onEvent and what follows say what is checked. A seed fixes the history: nodes, settings, what
// happens and when. How goroutines interleave within one moment is the scheduler's; to
// replay a failure run its seed with -count.
func TestSimulation(t *testing.T) {
	histories.Run(t, func(t *testing.T, seed uint64) { testkit.Play(t, histories, seed, play) })
}

// slot is a place in the cluster, and the manager there.
type slot struct {
	*testkit.Slot
	m     *singleton.Manager
	begun int  // managers so far
	muted bool // sends nothing: its manager is being stopped
}

// serves reports whether there is a manager that may be sent to.
func (sl *slot) serves() bool { return sl.Up() && !sl.muted && sl.m != nil && !ended(sl.m) }

// sender is who sends in order: what one manager of the node left with others when it ended,
// the next one's mail may overtake.
func (sl *slot) sender() string { return fmt.Sprint(sl.ID, "#", sl.begun) }

func ended(m *singleton.Manager) bool {
	select {
	case <-m.Done():
		return true
	default:
		return false
	}
}

// sim is one history. The driver's goroutine owns what is not in records.
type sim struct {
	*testkit.Sim
	slots  []*slot
	prefer []string // they are preferred
	opts   []singleton.Option
	jobs   int
	records
}

func play(of *testkit.Sim) {
	s := &sim{Sim: of, records: newRecords()}
	defer s.end()
	defer s.report()
	s.draw()
	ctx, cancel := context.WithCancel(s.T.Context())
	defer cancel()
	go s.WatchRecords(ctx, "singleton/x", s.see)
	for _, sl := range s.slots {
		s.restart(sl)
	}
	defer s.Besiege("holdfast/singleton/x", theLease)()
	s.trouble(30)
	s.heal()
	s.settle()
	if s.Jams {
		s.crowded()
	} else {
		s.calm()
	}
	s.trouble(15)
	s.heal()
	s.settle()
	s.stopAll()
	s.account()
}

// draw makes the settings up.
func (s *sim) draw() {
	for _, sl := range s.MakeSlots(4) {
		s.slots = append(s.slots, &slot{Slot: sl})
	}
	least := []time.Duration{20 * time.Millisecond, 200 * time.Millisecond}[s.R.IntN(2)]
	s.opts = append(s.opts, singleton.WithBackoff(least, 2*time.Second))
	switch s.R.IntN(4) {
	case 0, 1:
		s.Follow = true
	case 2:
		s.prefer = []string{"n1", "n0"}
		s.opts = append(s.opts, singleton.WithPreferred(s.prefer...))
	}
	settle := []time.Duration{0, 60 * time.Millisecond, 300 * time.Millisecond}
	if s.prefer != nil {
		settle = settle[1:] // else one move may follow another at once
	}
	s.opts = append(s.opts, singleton.WithSettle(settle[s.R.IntN(len(settle))]))
	stop := func() any { return bye{} }
	if s.R.IntN(2) == 0 {
		stop = nil
	}
	s.opts = append(s.opts, singleton.WithStop(stop, time.Second+s.UpTo(3*time.Second)))
	if s.R.IntN(2) == 0 {
		s.Yields = true
		s.opts = append(s.opts, singleton.WithOverdue(hosting.ReleaseAfterTTL))
	}
	if s.R.IntN(4) == 0 {
		s.Small = true
		s.opts = append(s.opts, singleton.WithBuffer(1+s.R.IntN(40), hosting.DropPolicy(s.R.IntN(2))))
	}
	s.Rude = s.Odds(3, 30) == 0
	s.Stop = 4 * time.Second
	if s.Jams = s.Odds(2, 20) == 0; s.Jams {
		s.DrawJams()
		s.opts = append(s.opts, singleton.WithStop(func() any { return bye{} }, s.Stop), singleton.WithLinger(s.Linger))
	}
}

func (s *sim) some() *slot { return s.slots[s.R.IntN(len(s.slots))] }

// behind is the store of a slot's next life: in one of four histories it can't watch.
func (s *sim) behind(sl *slot) store.Store {
	w := testkit.Witness{Store: s.Store, Sim: s.Sim, Way: dialect{s.Store, s.speaks(sl)}}
	if s.polls() {
		return unwatched{w, w}
	}
	return w
}

func (s *sim) polls() bool { return s.Odds(4, 51) == 0 }

// restart brings a slot's next incarnation up.
func (s *sim) restart(sl *slot) {
	if !sl.Gone {
		return
	}
	sl.m = nil
	n := s.Restart(sl.Slot, func() store.Store { return s.behind(sl) }, func(c *lease.Config) { c.Logger = s.logger(sl) })
	s.observe(n)
	s.start(sl)
}

func (s *sim) logger(sl *slot) *zap.Logger {
	l := zap.NewNop()
	if histories.Replays() {
		l = zaptest.NewLogger(s.T).With(zap.String("at", fmt.Sprint(sl.ID, ".", sl.Lives)))
	}
	return l
}

// start runs the singleton on a slot, unless it still does.
func (s *sim) start(sl *slot) {
	if sl.Gone || sl.m != nil && !ended(sl.m) {
		return
	}
	n := sl.On
	opts := append(slices.Clone(s.opts), singleton.WithLogger(s.logger(sl)), users(sl), singleton.WithJournal(func(name string, token lease.Token, _ time.Duration) { s.pass(n, name, token) }))
	if s.Follow {
		opts = append(opts, singleton.WithLeadership(sl.Leader))
	}
	m, err := singleton.Start(n.System, n.Keeper, "x", s.child(n), opts...)
	require.NoError(s.T, err, "seed %d", s.Seed)
	sl.m, sl.muted = m, false
	sl.begun++
	s.started(n, m)
	s.Logf("%s starts", sl.ID)
}

// end stops and closes everything, also of those that crashed.
func (s *sim) end() {
	var all sync.WaitGroup
	for n, ms := range s.all {
		n.Mend()
		for _, m := range ms {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
				defer cancel()
				_ = m.Stop(ctx)
			})
		}
	}
	all.Wait()
	for n := range s.all {
		n.Close()
	}
}

// The following judges a simulated history, beside testkit.Sim. What is checked, and where:
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

// simChild is a Stateful child that misbehaves in times of trouble.
type simChild struct {
	s        *sim
	n        *testkit.Node
	l        *testkit.Life
	restored string
}

// child makes children, in times of trouble not always.
func (s *sim) child(n *testkit.Node) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor {
		s.beBad(n, 31)
		if s.broken(n, 0) {
			panic("broken props")
		}
		return &simChild{s: s, n: n}
	}, actor.WithSpawnFunc(func(system *actor.ActorSystem, id string, props *actor.Props, parent actor.SpawnerContext) (*actor.PID, error) {
		pid, err := actor.DefaultSpawner(system, id, props, parent)
		if s.Odds(4, 36, s.Seed) == 0 { // it runs already
			s.beBad(n, 37)
		}
		return pid, err
	}))
}

// broken reports whether all children fail on a node until trouble is over, in its Props (0) or in
// Started (1): so it is on some nodes, in one of four histories.
func (s *sim) broken(n *testkit.Node, how int) bool {
	return s.breaks() && !s.Good.Load() && s.Odds(4, 53, uint64(n.ID[1])) == how
}

func (s *sim) breaks() bool { return s.Odds(4, 52) == 0 }

// beBad is what code does that makes children.
func (s *sim) beBad(n *testkit.Node, salt uint64) {
	if s.Good.Load() {
		return
	}
	s.Mu.Lock()
	s.made++
	number := uint64(s.made)
	s.Mu.Unlock()
	switch s.Odds(30, salt, number) {
	case 0, 1:
		panic("bad props")
	case 3, 4:
		s.hang(n, time.Duration(s.Odds(60000, 38, number))*time.Millisecond)
	}
}

// hang does not return for that long, or until trouble is over, and checks that its
// manager says so, which it can't unless it goes on.
func (s *sim) hang(n *testkit.Node, d time.Duration) {
	s.Mu.Lock()
	m, told, excused := s.newest(n), s.slow[n], s.Excused
	s.Mu.Unlock()
	s.Logf("%s: its Props hang", n.ID)
	began := time.Now()
	s.await(d)
	over := m == nil || ended(m)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Log("%s: its Props return", n.ID)
	if time.Since(began) > toldAfter && !over && !s.Rude && s.slow[n] == told && s.Excused == excused && !s.Out[n] {
		s.Fail("%s: nothing is said of Props that hung for %v", n.ID, time.Since(began))
	}
}

// await returns after that long, or when trouble is over.
func (s *sim) await(d time.Duration) {
	for began := time.Now(); time.Since(began) < d && !s.Good.Load(); {
		time.Sleep(100 * time.Millisecond)
	}
}

// toldAfter is when Props that hang have been told of, by the slowest clock.
const toldAfter = 6 * time.Second

// callBack is a subscriber that calls the manager of its node.
func (s *sim) callBack(n *testkit.Node, number int) {
	s.Mu.Lock()
	m := s.newest(n)
	out := s.Out[n]
	s.Mu.Unlock()
	if m == nil || out {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = m.Status()
	j := testkit.Job{Number: number}
	s.sent(n.ID, j)
	_, err := singleton.Ask[done](ctx, m, j)
	s.Logf("%s: a subscriber asked %v: %v", n.ID, j, err)
}

// Receive implements actor.Actor.
func (k *simChild) Receive(ctx actor.Context) {
	s := k.s
	s.Busy.Add(1)
	defer s.Busy.Add(-1)
	if j, ok := testkit.JobOf(ctx.Message()); ok {
		k.handle(ctx, j)
		return
	}
	if _, first := ctx.Message().(*actor.Started); first && s.broken(k.n, 1) {
		panic("it can't begin")
	} else if !first && k.l == nil {
		return // so it ends
	}
	bad, number := !s.Good.Load(), uint64(0)
	if k.l != nil {
		number = uint64(k.l.Number)
	}
	switch ctx.Message().(type) {
	case *actor.Started:
		g, ok := singleton.Of(ctx)
		if !ok {
			s.Failf("a child without its gate")
		}
		k.l = s.Born(&testkit.Life{On: k.n, ID: "x", Lease: theLease, Token: g.Token(), Guard: g}, k.restored)
		s.Logf("%s: child %d under %d begins with %q", k.n.ID, k.l.Number, k.l.Token, k.restored)
	case bye:
		if bad && s.Odds(4, 1, number) == 0 {
			s.Nap(longest, 2, number)
			return // nor does it stop
		}
		time.Sleep(s.LastWork(k.l, 2))
		s.part()
		ctx.Stop(ctx.Self())
	case *actor.Stopping:
		k.checkContext("Stopping")
		s.part()
		if bad && s.Odds(3, 3, number) == 0 {
			s.Nap(5*time.Second, 4, number)
		}
	case *actor.Stopped:
		k.checkContext("Stopped")
		s.Died(k.l)
		s.Logf("%s: child %d under %d ends", k.n.ID, k.l.Number, k.l.Token)
	}
}

func (k *simChild) handle(ctx actor.Context, j testkit.Job) {
	s, number := k.s, uint64(j.Number)
	s.Handle(k.l, j)
	if ctx.Sender() != nil {
		ctx.Respond(done{Number: j.Number, Token: k.l.Token, Node: k.n.ID})
	}
	if d := s.Labour(j); d > 0 {
		time.Sleep(d)
		return
	}
	if s.Good.Load() {
		time.Sleep(time.Duration(s.Odds(600, 5, number)) * time.Microsecond)
		return
	}
	switch s.Odds(40, 6, number) {
	case 0:
		panic("a bad job")
	case 1:
		ctx.Stop(ctx.Self())
	case 2, 3:
		time.Sleep(1500 * time.Millisecond)
	case 4:
		s.Nap(longest, 7, number)
	}
}

// longest is for how long a child that misbehaves may do so at a stretch.
const longest = 15 * time.Second

// checkContext checks I3: who is stopped for a loss finds its context done.
func (k *simChild) checkContext(in string) {
	if k.l.Guard.CheckAlive() || k.l.Guard.Context().Err() != nil {
		return
	}
	time.Sleep(time.Nanosecond) // it may have been lost at this moment
	k.s.Mu.Lock()
	defer k.s.Mu.Unlock()
	if k.l.Guard.Context().Err() == nil && !k.s.Out[k.n] {
		k.s.Fail("I3: %s sees %s after a loss, and its context is not done", k.n.ID, in)
	}
}

// HandOverState implements hosting.Stateful.
func (k *simChild) HandOverState() ([]byte, error) { return k.s.Leave(k.l) }

// RestoreState implements hosting.Stateful.
func (k *simChild) RestoreState(state []byte) error {
	k.restored = string(state)
	if !k.s.Good.Load() {
		n := k.s.Odds(15, 8, uint64(len(state)))
		if simulate.Break(n); n == 2 {
			return errors.New("not today")
		}
	}
	return nil
}

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

// The following is what the records of a simulated history say. Nodes are of versions one
// apart, life by life, as while they are upgraded node by node: nothing may come of it.

// version draws by which version a life of a node speaks: this one's, those around it,
// or that of before there was any word of it.
func (s *sim) version(sl *slot) string {
	return []string{"1", "", "0", "2"}[s.Odds(4, 40, uint64(slices.Index(s.slots, sl)), uint64(sl.Lives))]
}

// speaks is what that does to its records: the next version knows settings more, and one
// that differs.
func (s *sim) speaks(sl *slot) func(said map[string]string) {
	version := s.version(sl)
	return func(said map[string]string) {
		says(version)(said)
		if version == "2" {
			said[keySettings] += " message=1 another=2"
		}
	}
}

// users is the metadata of the user's, given twice.
func users(sl *slot) singleton.Option {
	return singleton.WithLeaseOptions(lease.WithMetadata(map[string]string{"first": sl.ID, "both": "no"}),
		lease.WithMetadata(map[string]string{"both": sl.ID}))
}

// checkSaid checks that a record has what the user says, and of a manager only what that
// which owns it said; under mu.
func (s *sim) checkSaid(rec lease.Record) {
	m := rec.Metadata
	if m["first"] == "" || m["both"] != m["first"] {
		s.Fail("the record of token %d lacks what the user says: %v", rec.Token, m)
	}
	if _, says := m[keyProtocol]; says && m["first"] != rec.Owner.ID {
		s.Fail("the record of token %d, of %s, says what %s said of itself: %v", rec.Token, rec.Owner.ID, m["first"], m)
	}
}

// checkAgreement checks what is made of who hosts: no version is too far from another,
// and settings that differ are known by all but the host.
func (s *sim) checkAgreement() {
	host := s.host()
	for _, sl := range s.slots {
		if host == nil || !sl.serves() {
			continue
		}
		st := sl.m.Status()
		differs := sl != host && s.version(host) == "2"
		if st.Refused != nil || differs != (st.Differs != "") {
			s.Failf("%s refuses its host, %s of version %q, or has not understood it: %v, %q", sl.ID, host.ID, s.version(host), st.Refused, st.Differs)
		}
	}
}

// trouble does random things to the cluster.
func (s *sim) trouble(steps int) {
	s.Good.Store(false)
	for range s.R.Each(steps) {
		s.act(s.some())
		if s.Jams && s.R.IntN(4) == 0 {
			s.Jam()
		}
		time.Sleep(s.UpTo([]time.Duration{20 * time.Millisecond, time.Second, 3 * time.Second}[s.R.IntN(3)]))
		for range s.R.IntN(6) {
			s.send(s.some(), "")
		}
	}
}

// act does one random thing.
func (s *sim) act(sl *slot) {
	what := s.R.IntN(testkit.Acts + 9)
	if s.Act(what, sl.Slot, s.Some()) {
		return
	}
	switch what -= testkit.Acts; {
	case what < 0:
		s.Flap()
	case what == 0 && !sl.Gone:
		s.Crash(sl.Slot)
	case what <= 3:
		s.restart(sl)
		s.start(sl)
	case what <= 5 && sl.serves():
		s.Logf("%s leaves", sl.ID)
		s.leave(sl)
	case what == 6 && sl.serves():
		s.failToStart(sl)
	default:
		s.Flap()
	}
}

// failToStart starts what can't be started, and then what can.
func (s *sim) failToStart(sl *slot) {
	n := sl.On
	_, err := singleton.Start(n.System, n.Keeper, "x", s.child(n))
	require.ErrorIs(s.T, err, singleton.ErrNameInUse, "seed %d", s.Seed)
	squatter, err := n.System.Root.SpawnNamed(actor.PropsFromFunc(func(actor.Context) {}), "holdfast/singleton/y")
	require.NoError(s.T, err)
	_, err = singleton.Start(n.System, n.Keeper, "y", s.child(n))
	require.ErrorIs(s.T, err, actor.ErrNameExists, "seed %d", s.Seed)
	n.System.Root.Stop(squatter)
	h, err := n.Keeper.Lease("singleton/y") // or it would be said to be in use
	require.NoError(s.T, err, "seed %d: a start that failed keeps its lease", s.Seed)
	require.NoError(s.T, h.Close(context.Background()))
	s.Logf("%s failed to start", sl.ID)
}

// leave tells a manager to stop.
func (s *sim) leave(sl *slot) (done <-chan struct{}) {
	sl.muted = true
	m := sl.m
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.Stop(ctx) // tells it
	return m.Done()
}

// send has a node send the next job; those of a calm time bear a name.
func (s *sim) send(sl *slot, name string) {
	if !sl.serves() {
		return
	}
	j := testkit.Job{Sender: name}
	if name == "" {
		s.jobs++
		j.Number = s.jobs
	} else {
		s.numbers[name]++
		j.Number = s.numbers[name]
	}
	s.sent(sl.ID, j)
	msg := testkit.FormOf(j)
	if s.Crowd {
		msg = s.Dress(j)
	}
	sl.On.System.Root.Send(sl.m.PID(), msg)
}

func (s *sim) sent(by string, j testkit.Job) { s.Sent(j, by, "x", 0) }

// heal ends all trouble; nobody is left down.
func (s *sim) heal() {
	s.Heal()
	for _, sl := range s.slots {
		s.restart(sl)
	}
	s.LeadAfterHeal()
}
