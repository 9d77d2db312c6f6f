package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
	"github.com/holdfast-go/holdfast/sharding"
)

// trouble does random things to the cluster.
func (s *sim) trouble(steps int) {
	s.good.Store(false)
	for range steps {
		s.poll()
		if !s.r.Step() {
			continue
		}
		sl := s.some()
		if boss := s.boss(); boss != nil && s.r.IntN(4) == 0 {
			sl = boss // in the middle of whatever it orders
		}
		s.act(sl)
		if s.jams && s.r.IntN(4) == 0 {
			s.jam()
		}
		time.Sleep(s.upTo([]time.Duration{20 * time.Millisecond, time.Second, 3 * time.Second}[s.r.IntN(3)]))
		for range s.r.IntN(20) {
			s.send(s.some())
		}
		s.waitingOf()
	}
}

// boss is where the coordinator is, by what some node knows.
func (s *sim) boss() *slot {
	for _, sl := range s.slots {
		if !sl.serves() {
			continue
		}
		in := sl.n.region.Info()
		for _, x := range s.slots {
			if x.owner().Incarnation == in.Coordinator.Incarnation && !x.gone {
				return x
			}
		}
	}
	return nil
}

// poll notes who has left.
func (s *sim) poll() {
	for _, sl := range s.slots {
		if sl.left == nil {
			continue
		}
		select {
		case <-sl.left:
			if sl.again {
				s.begin(sl)
				continue
			}
			s.logf("%s has left", sl.id)
			s.c.net.Kill(sl.address()) // it exits
			sl.gone, sl.left = true, nil
		default:
		}
	}
}

// act does one random thing.
func (s *sim) act(sl *slot) {
	other := s.some()
	switch what := s.r.IntN(34); {
	case what == 0 && !sl.gone:
		s.crash(sl)
	case what <= 4:
		s.restart(sl)
	case what == 5 && !sl.gone:
		s.freeze(sl, true)
	case what <= 7 && !sl.gone:
		s.freeze(sl, false)
	case what == 8 && sl.up():
		s.logf("%s has no store", sl.id)
		sl.n.store.Partition()
	case what <= 10 && sl.up():
		s.logf("%s has its store", sl.id)
		sl.n.store.Heal()
	case what <= 12 && !sl.gone:
		s.logf("%s store faults", sl.id)
		sl.n.store.SetRule(s.faults())
	case what == 13 && other != sl:
		s.logf("%s -> %s cut", sl.id, other.id)
		s.broke()
		s.c.net.CutOneWay(sl.address(), other.address())
	case what == 14 && other != sl:
		s.logf("%s - %s cut", sl.id, other.id)
		s.broke()
		s.c.net.Cut(sl.address(), other.address())
	case what <= 17 && other != sl:
		s.logf("%s - %s healed", sl.id, other.id)
		s.broke()
		s.c.net.Heal(sl.address(), other.address())
	case what <= 19 && sl.serves():
		s.leave(sl)
	case what == 20 && other != sl:
		s.c.net.SetDelay(sl.address(), other.address(), s.upTo(20*time.Millisecond))
	case what == 21 && !sl.gone:
		sl.n.clock.SetRate(0.94 + 0.12*s.r.Float64())
	case what == 22 && !sl.gone:
		sl.n.clock.StepWall(s.upTo(40*time.Second) - 20*time.Second)
	case what == 23 && sl.serves():
		s.drain(sl, true)
	case what <= 25 && sl.serves():
		s.drain(sl, false)
	case what <= 28 && sl.up():
		s.evict(sl)
	case what <= 30 && sl.serves():
		s.again(sl)
	case what <= 32 && sl.serves() && other.serves():
		s.behead(sl, other)
	case s.follow:
		s.flap()
	}
}

func (s *sim) crash(sl *slot) {
	s.logf("%s crashes", sl.id)
	s.crashed(sl.n)
	sl.n.crash()
	sl.gone, sl.left, sl.again = true, nil, false
}

// leave has a node stop its Region, leave the group and exit.
func (s *sim) leave(sl *slot) {
	s.logf("%s leaves", sl.id)
	n, left := sl.n, make(chan struct{})
	sl.left = left
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute+s.stop+s.linger)
		defer cancel()
		if n.region.Stop(ctx) != nil {
			return // settle looks for that
		}
		_ = n.group.Leave(ctx)
		_ = n.keeper.Close(ctx)
		time.Sleep(50 * time.Millisecond) // what it has sent is delivered
		close(left)
	}()
}

func (s *sim) drain(sl *slot, on bool) {
	if sl.drained == on {
		return
	}
	s.logf("%s drained: %v", sl.id, on)
	sl.drained = on
	if !on {
		sl.n.region.Undrain()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = sl.n.region.Drain(ctx) // tells it
}

// freeze pauses a node as SIGSTOP does, or lets it go on.
func (s *sim) freeze(sl *slot, on bool) {
	if sl.frozen == on {
		return
	}
	sl.frozen = on
	s.logf("%s frozen: %v", sl.id, on)
	s.excuse(sl.n, on)
	if on {
		sl.n.clock.Freeze()
		sl.n.store.Partition()
		s.c.net.Freeze(sl.address())
		return
	}
	sl.n.store.Heal()
	sl.n.clock.Thaw()
	s.c.net.Thaw(sl.address())
}

// faults makes a random share of the calls go wrong in random ways.
func (s *sim) faults() func(faultstore.Call) faultstore.Fault {
	if s.r.IntN(3) == 0 {
		return nil
	}
	r := rand.New(rand.NewPCG(s.r.Uint64(), 2))
	share := r.Float64() / 2
	moves := r.IntN(2) == 0 // above all those
	kinds := []faultstore.Kind{faultstore.Delay, faultstore.Drop, faultstore.ApplyThenFail, faultstore.ReplyLate,
		faultstore.LandLate}
	var mu sync.Mutex // calls come from many goroutines
	return func(c faultstore.Call) faultstore.Fault {
		mu.Lock()
		defer mu.Unlock()
		odds := share
		if moves && (c.Op == faultstore.Transfer || c.Op == faultstore.Release || c.Op == faultstore.Acquire) {
			odds = 0.7
		}
		if r.Float64() > odds {
			return faultstore.Fault{}
		}
		return faultstore.Fault{
			Kind: kinds[r.IntN(len(kinds))], Delay: time.Duration(r.Int64N(int64(ttl))),
			Hang: r.IntN(2) == 0,
		}
	}
}

// flap makes nodes believe that another leads: all of them, each when it hears
// of it, or some of them something else.
func (s *sim) flap() {
	owner := s.some().owner()
	if s.r.IntN(8) == 0 {
		owner = lease.Owner{}
	}
	late := []time.Duration{1, 50 * time.Millisecond, 2 * time.Second}[s.r.IntN(3)]
	for _, sl := range s.slots {
		believed := owner
		if s.r.IntN(6) == 0 {
			believed = s.some().owner()
		}
		if leader := sl.leader; leader != nil && s.r.IntN(8) > 0 {
			sl.heard.After(s.upTo(late), func() { leader.Set(believed) })
		}
	}
	s.logf("leader is %q", owner.ID)
}

// lead makes all nodes believe that sl leads.
func (s *sim) lead(sl *slot, late time.Duration) {
	s.logf("%s is to lead", sl.id)
	s.leads = sl
	for _, x := range s.slots {
		if owner, leader := sl.owner(), x.leader; leader != nil {
			x.heard.After(s.upTo(late), func() { leader.Set(owner) })
		}
	}
}

func (s *sim) id() string { return fmt.Sprint("id", s.r.IntN(s.ids)) }

// send has a node send the next job of a time of trouble to some entity.
func (s *sim) send(sl *slot) {
	if !sl.serves() {
		return
	}
	s.jobs++
	j, id, r, first := job{Number: s.jobs}, s.id(), sl.n.region, sl.lives == 1
	if s.r.IntN(20) == 0 {
		s.forgeLife(sl, id)
	}
	s.sent(j, sl.id, id)
	if s.r.IntN(8) > 0 {
		if err := r.Tell(id, formOf(j)); err != nil {
			s.failf("%s can't tell: %v", sl.id, err)
		}
		return
	}
	n, began := sl.n, time.Now()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		switch got, err := sharding.Ask[done](ctx, r, id, formOf(j)); {
		case errors.Is(err, hosting.ErrUnconfirmed) && !s.rude && !s.cutSince(n, began): // a rude user may fail a send
			s.failf("%s asked %s, and no link has broken since: %v", sl.id, id, err)
		case errors.Is(err, sharding.ErrClosed): // it has left at this moment
			s.unsent(j)
		// A node's next life gives its futures the same names, and may be answered what
		// the last one asked.
		case err == nil && first && (got.ID != id || got.Number != j.Number):
			s.failf("%s asked %s for %d and got %+v", sl.id, id, j.Number, got)
		}
	}()
}

// heal ends all trouble; nobody is left down, or drained.
func (s *sim) heal() {
	s.logf("healed")
	s.good.Store(true)
	s.broke()
	for i, sl := range s.slots {
		if !sl.gone {
			s.freeze(sl, false)
			sl.n.store.SetRule(nil)
			sl.n.store.Heal()
			sl.n.clock.SetRate(1)
		}
		if sl.serves() {
			s.drain(sl, false)
		}
		for _, other := range s.slots[:i] {
			s.c.net.Heal(sl.address(), other.address())
			s.c.net.SetDelay(sl.address(), other.address(), 0)
			s.c.net.SetDelay(other.address(), sl.address(), 0)
		}
	}
	s.ease(s.slots...)
	s.gather()
}

// gather waits for those that are leaving, brings up who is gone, and has one lead.
func (s *sim) gather() {
	began := time.Now()
	for len(s.which(func(sl *slot) bool { return sl.left != nil })) > 0 {
		if time.Since(began) > s.bound() {
			s.endf("I7: not ended %v after all trouble", s.bound())
		}
		time.Sleep(20 * time.Millisecond)
		s.poll()
	}
	for _, sl := range s.slots {
		s.restart(sl)
	}
	if s.follow {
		time.Sleep(2 * time.Second) // what is seen late has been seen
		s.lead(s.some(), time.Second)
	}
}
