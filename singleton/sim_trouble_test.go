package singleton_test

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/singleton"
)

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
