package singleton_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
	"github.com/holdfast-go/holdfast/singleton"
)

// trouble does random things to the cluster.
func (s *sim) trouble(steps int) {
	s.good.Store(false)
	for range steps {
		if !s.r.Step() {
			continue
		}
		s.act(s.some())
		if s.jams && s.r.IntN(4) == 0 {
			s.jam()
		}
		time.Sleep(s.upTo([]time.Duration{20 * time.Millisecond, time.Second, 3 * time.Second}[s.r.IntN(3)]))
		for range s.r.IntN(6) {
			s.send(s.some(), "")
		}
	}
}

// act does one random thing.
func (s *sim) act(sl *slot) {
	other := s.some()
	switch what := s.r.IntN(26); {
	case what == 0 && !sl.gone:
		s.crash(sl)
	case what <= 3:
		s.restart(sl)
		s.start(sl)
	case what == 4 && !sl.gone:
		s.freeze(sl, true)
	case what <= 6 && !sl.gone:
		s.freeze(sl, false)
	case what == 7 && sl.up():
		s.logf("%s has no store", sl.id)
		sl.n.store.Partition()
	case what <= 9 && sl.up():
		s.logf("%s has its store", sl.id)
		sl.n.store.Heal()
	case what <= 12 && !sl.gone:
		s.logf("%s store faults", sl.id)
		sl.n.store.SetRule(s.faults())
	case what == 13 && other != sl:
		s.logf("%s -> %s cut", sl.id, other.id)
		s.broke()
		s.c.net.CutOneWay(sl.id+":1", other.id+":1")
	case what == 14 && other != sl:
		s.logf("%s - %s cut", sl.id, other.id)
		s.broke()
		s.c.net.Cut(sl.id+":1", other.id+":1")
	case what <= 17 && other != sl:
		s.logf("%s - %s healed", sl.id, other.id)
		s.broke()
		s.c.net.Heal(sl.id+":1", other.id+":1")
	case what <= 19 && sl.serves():
		s.logf("%s leaves", sl.id)
		s.leave(sl)
	case what == 20 && other != sl:
		s.c.net.SetDelay(sl.id+":1", other.id+":1", s.upTo(20*time.Millisecond))
	case what == 21 && !sl.gone:
		sl.n.clock.SetRate(0.94 + 0.12*s.r.Float64())
	case what == 22 && !sl.gone:
		sl.n.clock.StepWall(s.upTo(40*time.Second) - 20*time.Second)
	case what == 23 && sl.serves():
		s.failToStart(sl)
	case s.follow:
		s.flap()
	}
}

// failToStart starts what can't be started, and then what can.
func (s *sim) failToStart(sl *slot) {
	n := sl.n
	_, err := singleton.Start(n.system, n.keeper, "x", s.child(n))
	require.ErrorIs(s.t, err, singleton.ErrNameInUse, "seed %d", s.seed)
	squatter, err := n.system.Root.SpawnNamed(actor.PropsFromFunc(func(actor.Context) {}), "holdfast/singleton/y")
	require.NoError(s.t, err)
	_, err = singleton.Start(n.system, n.keeper, "y", s.child(n))
	require.ErrorIs(s.t, err, actor.ErrNameExists, "seed %d", s.seed)
	n.system.Root.Stop(squatter)
	h, err := n.keeper.Lease("singleton/y") // or it would be said to be in use
	require.NoError(s.t, err, "seed %d: a start that failed keeps its lease", s.seed)
	require.NoError(s.t, h.Close(context.Background()))
	s.logf("%s failed to start", sl.id)
}

func (s *sim) crash(sl *slot) {
	s.logf("%s crashes", sl.id)
	s.crashed(sl.n)
	sl.n.crash()
	sl.gone = true
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
		s.c.net.Freeze(sl.id + ":1")
		return
	}
	sl.n.store.Heal()
	sl.n.clock.Thaw()
	s.c.net.Thaw(sl.id + ":1")
}

// faults makes a random share of the calls go wrong in random ways.
func (s *sim) faults() func(faultstore.Call) faultstore.Fault {
	if s.r.IntN(3) == 0 {
		return nil
	}
	r := rand.New(rand.NewPCG(s.r.Uint64(), 2))
	share := r.Float64() / 2
	moves := r.IntN(2) == 0 // above all those
	kinds := []faultstore.Kind{faultstore.Delay, faultstore.Drop, faultstore.ApplyThenFail, faultstore.ReplyLate, faultstore.LandLate}
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
		if leader := sl.leader; s.r.IntN(8) > 0 {
			sl.heard.After(s.upTo(late), func() { leader.Set(believed) })
		}
	}
	s.logf("leader is %q", owner.ID)
}

// lead makes all nodes believe that sl leads.
func (s *sim) lead(sl *slot, late time.Duration) {
	s.leads = sl
	for _, x := range s.slots {
		owner, leader := sl.owner(), x.leader
		x.heard.After(s.upTo(late), func() { leader.Set(owner) })
	}
}

// send has a node send the next job; those of a calm time bear a name.
func (s *sim) send(sl *slot, name string) {
	if !sl.serves() {
		return
	}
	j := job{Sender: name}
	if name == "" {
		s.jobs++
		j.Number = s.jobs
	} else {
		j.Number = s.next(name)
	}
	s.sent(j)
	if s.jams {
		s.note(j)
	}
	msg := formOf(j)
	if s.unfit(j) {
		msg = &actor.MessageEnvelope{Message: msg, Header: map[string]string{"trace": "\xff"}}
	}
	sl.n.system.Root.Send(sl.m.PID(), msg)
}

// heal ends all trouble; nobody is left down.
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
		for _, other := range s.slots[:i] {
			s.c.net.Heal(sl.id+":1", other.id+":1")
			s.c.net.SetDelay(sl.id+":1", other.id+":1", 0)
			s.c.net.SetDelay(other.id+":1", sl.id+":1", 0)
		}
	}
	s.ease(s.slots...)
	for _, sl := range s.slots {
		s.restart(sl)
	}
	if s.follow {
		time.Sleep(2 * time.Second) // what is seen late has been seen
		s.lead(s.some(), time.Second)
	}
}
