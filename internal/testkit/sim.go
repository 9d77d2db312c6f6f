package testkit

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"

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
