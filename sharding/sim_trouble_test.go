package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/sharding"
)

// trouble does random things to the cluster.
func (s *sim) trouble(steps int) {
	s.Good.Store(false)
	for range steps {
		s.poll()
		if !s.R.Step() {
			continue
		}
		sl := s.some()
		if boss := s.boss(); boss != nil && s.R.IntN(4) == 0 {
			sl = boss // in the middle of whatever it orders
		}
		s.act(sl)
		if s.Jams && s.R.IntN(4) == 0 {
			s.Jam()
		}
		time.Sleep(s.UpTo([]time.Duration{20 * time.Millisecond, time.Second, 3 * time.Second}[s.R.IntN(3)]))
		for range s.R.IntN(20) {
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
		in := sl.region.Info()
		for _, x := range s.slots {
			if x.Owner().Incarnation == in.Coordinator.Incarnation && !x.Gone {
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
			s.Logf("%s has left", sl.ID)
			s.Net.Kill(sl.Address()) // it exits
			sl.Gone, sl.left = true, nil
		default:
		}
	}
}

// act does one random thing.
func (s *sim) act(sl *slot) {
	other, what := s.some(), s.R.IntN(testkit.Acts+18)
	if s.Act(what, sl.Slot, other.Slot) {
		return
	}
	switch what -= testkit.Acts; {
	case what < 0:
		s.Flap()
	case what == 0 && !sl.Gone:
		s.crash(sl)
	case what <= 4:
		s.restart(sl)
	case what <= 6 && sl.serves():
		s.leave(sl)
	case what == 7 && sl.serves():
		s.drain(sl, true)
	case what <= 9 && sl.serves():
		s.drain(sl, false)
	case what <= 12 && sl.Up():
		s.evict(sl)
	case what <= 14 && sl.serves():
		s.relaunch(sl)
	case what <= 16 && sl.serves() && other.serves():
		s.behead(sl, other)
	default:
		s.Flap()
	}
}

func (s *sim) crash(sl *slot) {
	s.Crash(sl.Slot)
	sl.left, sl.again = nil, false
}

// leave has a node stop its Region, leave the group and exit.
func (s *sim) leave(sl *slot) {
	s.Logf("%s leaves", sl.ID)
	n, r, g, left := sl.On, sl.region, sl.group, make(chan struct{})
	sl.left = left
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute+s.Stop+s.Linger)
		defer cancel()
		if r.Stop(ctx) != nil {
			return // settle looks for that
		}
		_ = g.Leave(ctx)
		_ = n.Keeper.Close(ctx)
		time.Sleep(50 * time.Millisecond) // what it has sent is delivered
		close(left)
	}()
}

func (s *sim) drain(sl *slot, on bool) {
	if sl.drained == on {
		return
	}
	s.Logf("%s drained: %v", sl.ID, on)
	sl.drained = on
	if !on {
		sl.region.Undrain()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = sl.region.Drain(ctx) // tells it
}

func (s *sim) id() string { return fmt.Sprint("id", s.R.IntN(s.ids)) }

// send has a node send the next job of a time of trouble to some entity.
func (s *sim) send(sl *slot) {
	if !sl.serves() {
		return
	}
	j, id, r, first := s.next(), s.id(), sl.region, sl.Lives == 1
	if s.R.IntN(20) == 0 {
		s.forgeLife(sl, id)
	}
	s.sent(j, sl.ID, id)
	if s.R.IntN(8) > 0 {
		if err := r.Tell(id, testkit.FormOf(j)); err != nil {
			s.Failf("%s can't tell: %v", sl.ID, err)
		}
		return
	}
	n, began := sl.On, time.Now()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		switch got, err := sharding.Ask[done](ctx, r, id, testkit.FormOf(j)); {
		case errors.Is(err, hosting.ErrUnconfirmed) && !s.Rude && !s.cutSince(n, began): // a rude user may fail a send
			s.Failf("%s asked %s, and no link has broken since: %v", sl.ID, id, err)
		case errors.Is(err, sharding.ErrClosed): // it has left at this moment
			s.Unsent(j)
		// A node's next life gives its futures the same names, and may be answered what
		// the last one asked.
		case err == nil && first && (got.ID != id || got.Number != j.Number):
			s.Failf("%s asked %s for %d and got %+v", sl.ID, id, j.Number, got)
		}
	}()
}

// heal ends all trouble; nobody is left down, or drained.
func (s *sim) heal() {
	s.Heal()
	for _, sl := range s.which((*slot).serves) {
		s.drain(sl, false)
	}
	s.gather()
}

// gather waits for those that are leaving, brings up who is gone, and has one lead.
func (s *sim) gather() {
	began := time.Now()
	for len(s.which(func(sl *slot) bool { return sl.left != nil })) > 0 {
		if time.Since(began) > s.bound() {
			s.Endf("I7: not ended %v after all trouble", s.bound())
		}
		time.Sleep(20 * time.Millisecond)
		s.poll()
	}
	for _, sl := range s.slots {
		s.restart(sl)
	}
	s.LeadAfterHeal()
}
