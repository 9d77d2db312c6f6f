package testkit

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"

	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// Slot is a place in the cluster: an address, where one incarnation after the
// other lives.
type Slot struct {
	ID     string
	Lives  int
	On     *Node // the present one's; nil before the first
	Leader *membership.Static
	heard  simulate.News // of leaders
	Frozen bool
	Gone   bool // crashed or left, and not yet restarted
}

// Address is where its nodes are reached.
func (sl *Slot) Address() string { return sl.ID + ":1" }

// Up reports whether a node is there that runs.
func (sl *Slot) Up() bool { return !sl.Gone && !sl.Frozen }

// Owner is who the present node is to the store.
func (sl *Slot) Owner() lease.Owner {
	if sl.On == nil {
		return lease.Owner{}
	}
	return sl.On.Keeper.Owner()
}

// MakeSlots makes up to a number of slots, two at least.
func (s *Sim) MakeSlots(most int) []*Slot {
	for i := range 2 + s.R.IntN(most-1) {
		s.Slots = append(s.Slots, &Slot{ID: fmt.Sprint("n", i), Gone: true})
	}
	return s.Slots
}

// UpTo is a random time.
func (s *Sim) UpTo(d time.Duration) time.Duration { return time.Duration(s.R.Int64N(int64(d))) }

// Some is a random slot.
func (s *Sim) Some() *Slot { return s.Slots[s.R.IntN(len(s.Slots))] }

// Odds is a random number that is the same whenever the history is replayed.
func (s *Sim) Odds(n int, what ...uint64) int {
	h := s.Seed
	for _, w := range what {
		h = rand.New(rand.NewPCG(h, w)).Uint64()
	}
	return int(h % uint64(n))
}

// Nap takes up to most, as odds are.
func (s *Sim) Nap(most time.Duration, what ...uint64) {
	time.Sleep(time.Duration(s.Odds(int(most/time.Millisecond), what...)) * time.Millisecond)
}

// Restart brings a slot's next incarnation up, before a store of its own.
func (s *Sim) Restart(sl *Slot, store func() store.Store, change func(*lease.Config)) *Node {
	sl.Lives++
	n := NewNode(s.T, s.Net, store(), sl.ID, sl.Address(), change)
	sl.On, sl.Gone, sl.Frozen = n, false, false
	was := sl.Leader
	sl.Leader = membership.NewStatic(n.Keeper.Owner())
	if was != nil && s.R.IntN(2) == 0 {
		sl.Leader.Set(s.Some().Owner())
	}
	s.Logf("%s comes up, life %d", sl.ID, sl.Lives)
	return n
}

// Act does one of the random things that come to any node, by a number. It reports whether it
// did: not from Acts on.
func (s *Sim) Act(what int, sl, other *Slot) bool {
	switch {
	case what == 0 && !sl.Gone:
		s.Freeze(sl, true)
	case what <= 2 && !sl.Gone:
		s.Freeze(sl, false)
	case what == 3 && sl.Up():
		s.Logf("%s has no store", sl.ID)
		sl.On.Store.Partition()
	case what <= 5 && sl.Up():
		s.Logf("%s has its store", sl.ID)
		sl.On.Store.Heal()
	case what <= 8 && !sl.Gone:
		s.Logf("%s store faults", sl.ID)
		sl.On.Store.SetRule(s.faults())
	case what == 9 && other != sl:
		s.Logf("%s -> %s cut", sl.ID, other.ID)
		s.Broke()
		s.Net.CutOneWay(sl.Address(), other.Address())
	case what == 10 && other != sl:
		s.Logf("%s - %s cut", sl.ID, other.ID)
		s.Broke()
		s.Net.Cut(sl.Address(), other.Address())
	case what <= 13 && other != sl:
		s.Logf("%s - %s healed", sl.ID, other.ID)
		s.Broke()
		s.Net.Heal(sl.Address(), other.Address())
	case what == 14 && other != sl:
		s.Net.SetDelay(sl.Address(), other.Address(), s.UpTo(20*time.Millisecond))
	case what == 15 && !sl.Gone:
		sl.On.Clock.SetRate(0.94 + 0.12*s.R.Float64())
	case what == Acts-1 && !sl.Gone:
		sl.On.Clock.StepWall(s.UpTo(40*time.Second) - 20*time.Second)
	default:
		return false
	}
	return true
}

// Acts is how many of those there are.
const Acts = 17

// Crash ends a slot's node at once.
func (s *Sim) Crash(sl *Slot) {
	s.Logf("%s crashes", sl.ID)
	s.Mu.Lock()
	s.Out[sl.On], s.LastCrash = true, time.Now()
	s.Excused++
	s.Mu.Unlock()
	sl.On.Crash()
	sl.Gone = true
}

// Freeze pauses a node as SIGSTOP does, or lets it go on.
func (s *Sim) Freeze(sl *Slot, on bool) {
	if sl.Frozen == on {
		return
	}
	sl.Frozen = on
	s.Logf("%s frozen: %v", sl.ID, on)
	s.Mu.Lock()
	s.Out[sl.On], s.LastCut = on, time.Now()
	s.Excused++
	s.Mu.Unlock()
	if on {
		sl.On.Clock.Freeze()
		sl.On.Store.Partition()
		s.Net.Freeze(sl.Address())
		return
	}
	sl.On.Store.Heal()
	sl.On.Clock.Thaw()
	s.Net.Thaw(sl.Address())
}

// faults makes a random share of the calls go wrong in random ways.
func (s *Sim) faults() func(faultstore.Call) faultstore.Fault {
	if s.R.IntN(3) == 0 {
		return nil
	}
	fork := func() *rand.Rand { return rand.New(rand.NewPCG(s.R.Uint64(), 2)) }
	rare := simulate.Faults(fork(), s.R.Float64()/2, TTL)
	if s.R.IntN(2) == 0 {
		return rare
	}
	often := simulate.Faults(fork(), 0.7, TTL)
	return func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Transfer || c.Op == faultstore.Release || c.Op == faultstore.Acquire {
			return often(c)
		}
		return rare(c)
	}
}

// Flap makes nodes believe that another leads: all of them, each when it hears
// of it, or some of them something else. It does so where the histories follow leaders.
func (s *Sim) Flap() {
	if !s.Follow {
		return
	}
	owner := s.Some().Owner()
	if s.R.IntN(8) == 0 {
		owner = lease.Owner{}
	}
	late := []time.Duration{1, 50 * time.Millisecond, 2 * time.Second}[s.R.IntN(3)]
	for _, sl := range s.Slots {
		believed := owner
		if s.R.IntN(6) == 0 {
			believed = s.Some().Owner()
		}
		if s.R.IntN(8) > 0 {
			s.hear(sl, late, believed)
		}
	}
	s.Logf("leader is %q", owner.ID)
}

func (s *Sim) hear(sl *Slot, late time.Duration, owner lease.Owner) {
	if leader := sl.Leader; leader != nil {
		sl.heard.After(s.UpTo(late), func() { leader.Set(owner) })
	}
}

// Lead makes all nodes believe that sl leads.
func (s *Sim) Lead(sl *Slot, late time.Duration) {
	s.Logf("%s is to lead", sl.ID)
	s.Leads = sl
	for _, x := range s.Slots {
		s.hear(x, late, sl.Owner())
	}
}

// Heal ends all trouble of nodes and links.
func (s *Sim) Heal() {
	s.Logf("healed")
	s.Good.Store(true)
	s.Broke()
	for i, sl := range s.Slots {
		if !sl.Gone {
			s.Freeze(sl, false)
			sl.On.Mend()
		}
		for _, other := range s.Slots[:i] {
			s.Net.Heal(sl.Address(), other.Address())
			s.Net.SetDelay(sl.Address(), other.Address(), 0)
			s.Net.SetDelay(other.Address(), sl.Address(), 0)
		}
	}
	s.Ease(s.Slots...)
}

// LeadAfterHeal has one lead again, where the histories follow leaders.
func (s *Sim) LeadAfterHeal() {
	if s.Follow {
		time.Sleep(2 * time.Second) // what is seen late has been seen
		s.Lead(s.Some(), time.Second)
	}
}

// DelayLinks has each link take up to d.
func (s *Sim) DelayLinks(d time.Duration) {
	for _, a := range s.Slots {
		for _, b := range s.Slots {
			if a != b {
				s.Net.SetDelay(a.Address(), b.Address(), s.UpTo(d))
			}
		}
	}
}

// Misbehave is a subscriber of the EventStream that does, in times of trouble: it panics,
// hangs, or calls back. Ours is an event of the package that is tested.
func (s *Sim) Misbehave(evt any, ours bool, hold func(time.Duration), callBack func(number int)) {
	letter := false
	if d, ok := evt.(*actor.DeadLetterEvent); ok {
		_, nested := d.Message.(*actor.Terminated) // protoactor publishes it when it tells a watcher that has ended
		letter = !nested
	}
	_, failure := evt.(*actor.SupervisorEvent)
	_, link := evt.(*remote.EndpointTerminatedEvent)
	if s.Good.Load() || !s.Rude || !ours && !letter && !failure && !link {
		return
	}
	s.Mu.Lock()
	s.told++
	told := s.told
	s.Mu.Unlock()
	switch what := s.Odds(16, 32, uint64(told)); {
	case what < 6:
		panic("a subscriber's bug")
	case what == 6 && (ours || link):
		d := time.Duration(s.Odds(5000, 33, uint64(told))) * time.Millisecond
		s.Logf("a subscriber hangs at %T for %v", evt, d)
		hold(d)
		time.Sleep(d)
	case what == 7 && ours:
		callBack(1_000_000 + told)
	}
}

// This file has the histories in which links get congested. Their calm time is a
// crowded one: mailboxes fill, handlers and stops take up to minutes, and leases move by
// plan over links that are slow or hang.

// DrawJams makes up the settings of a congested history.
func (s *Sim) DrawJams() {
	s.Stop = simulate.Spread(s.R.Float64(), 10*time.Millisecond, 2*time.Minute)
	s.Toil = simulate.Spread(s.R.Float64(), time.Microsecond, 30*time.Microsecond)
	// What is left when lingering ends is dropped, and may have been taken up, too; so
	// that does not end before all has got through.
	s.Linger = 2 * time.Minute
}

func addresses(slots []*Slot) (all []string) {
	for _, sl := range slots {
		all = append(all, sl.Address())
	}
	return all
}

// Jam congests links.
func (s *Sim) Jam() { s.Logf("jam: %v", simulate.Jam(s.R, s.Net, addresses(s.Slots))) }

// Ease ends the congestion of all links that those nodes are an end of.
func (s *Sim) Ease(slots ...*Slot) {
	if s.Jams {
		simulate.Ease(s.Net, addresses(slots), addresses(s.Slots))
	}
}

// cameTo counts what became of a job; under Mu.
func (s *Sim) cameTo(f *Fate) {
	if f.Crowd && f.Handled+f.Dead == 1 {
		s.Tally.Done(f.Shard)
	}
}

// Labour is how long a handler takes in a crowded time: hardly ever long.
func (s *Sim) Labour(j Job) time.Duration {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if !s.Crowd {
		return 0
	}
	if u := s.Odds(1000, 21, uint64(j.Number)); u >= 2 {
		return time.Duration(u) * s.Toil
	}
	return simulate.Spread(float64(s.Odds(1000, 22, uint64(j.Number)))/1000, time.Millisecond, 2*time.Minute)
}

// LastWork is how long one actor of several takes in a crowded time that was told to stop.
func (s *Sim) LastWork(l *Life, of int) time.Duration {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if !s.Crowd || s.Odds(of, 23, uint64(l.Number)) > 0 {
		return 0
	}
	return simulate.Spread(float64(s.Odds(1000, 24, uint64(l.Number)))/1000, time.Millisecond, 2*time.Minute)
}

// Unfit reports whether a job of a crowded time goes with a header that no other node can
// be told: it is refused, unless its actor is on its sender's node.
func (s *Sim) Unfit(j Job) bool { return s.Odds(200, 41, uint64(j.Number)) == 0 }

// Dress returns j in the form in which it travels in a crowded time.
func (s *Sim) Dress(j Job) any {
	msg := FormOf(j)
	if s.Unfit(j) {
		return &actor.MessageEnvelope{Message: msg, Header: map[string]string{"trace": "\xff"}}
	}
	return msg
}

// Chat has send called for d, or until a condition holds: often at first, and ever more
// rarely.
func (s *Sim) Chat(d time.Duration, send func(), until func() bool) (held bool) {
	for began := time.Now(); time.Since(began) < d; {
		time.Sleep(min(time.Second, time.Millisecond+s.UpTo(3*time.Millisecond+time.Since(began)/10)))
		send()
		if until != nil && until() {
			return true
		}
	}
	return until == nil
}

// Crowded plays a crowded time, and judges it.
func (s *Sim) Crowded(c Thrift, count func() Counts, play func()) {
	s.Mu.Lock()
	before := count()
	clear(s.disorder)
	s.Crowd, s.Tally = true, simulate.Tally{}
	s.Mu.Unlock()
	net, kinds, began := s.Net.Stats(), s.Net.Kinds(), time.Now()
	play()
	s.Ease(s.Slots...)
	for began := time.Now(); s.pending() > 0 && time.Since(began) < time.Hour; {
		time.Sleep(time.Second)
	}
	time.Sleep(s.Stop + TTL) // what is doubled comes late
	s.Waits()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Judge(before, count(), nil)
	s.thrift(c, net, simulate.TrafficSince(s.Net, kinds), time.Since(began))
	s.Crowd = false
}

func (s *Sim) pending() int {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.Tally.Pending()
}

// Thrift is what one message takes on a link at the most, and all that is no mail.
type Thrift struct {
	Hop    int  // bytes of a message, with its envelope, the frame around it, and names
	Move   int  // bytes of each node for a move: orders, offers, markers
	Other  int  // messages beside mail
	Before int  // messages that were sent before
	Stay   bool // no process ends, so no link breaks
	Late   bool // nodes look for the host now and then, and mail goes by way of the former one until then
}

const otherBytes = 64 << 10 // of moves, and of coordination

// thrift checks that a jam is not made worse: that little is sent again, that no
// link's queue has more than there is, and that nothing was left on the way.
func (s *Sim) thrift(c Thrift, before memnet.Stats, sent simulate.Traffic, took time.Duration) {
	now := s.Net.Stats()
	s.Log("crowded: %+v sent, for %d hops and %d moves, %d pending at the most", sent, s.Tally.Hops, s.Tally.Moves, s.Tally.Peak)
	if c.Late {
		s.Tally.Hops *= 2
	}
	for _, what := range s.Tally.Waste(sent, len(s.Slots), took, c.Hop) {
		s.Fail("waste: %s", what)
	}
	most, other := s.Tally.Peak+c.Before, otherBytes+s.Tally.Moves*len(s.Slots)*c.Move
	for _, from := range addresses(s.Slots) {
		for _, to := range addresses(s.Slots) {
			if messages, queued := s.Net.Peak(from, to); messages > most+c.Other || queued > most*c.Hop*3/2+other {
				s.Fail("waste: %s -> %s had %d messages in its queue, of %d bytes, with %d pending at the most", from, to, messages, queued, s.Tally.Peak)
			}
		}
	}
	if broken := now.Broken - before.Broken + now.Refused - before.Refused; now.Overflown > before.Overflown || c.Stay && broken > 0 {
		s.Fail("I5: %d messages found a queue full, %d a link broken or nobody", now.Overflown-before.Overflown, broken)
	}
}
