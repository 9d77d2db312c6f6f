package singleton_test

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/singleton"
)

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
