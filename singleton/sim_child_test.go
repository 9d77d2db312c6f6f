package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
)

// simLife is one child, from Started to Stopped.
type simLife struct {
	id     int
	on     *node
	token  lease.Token
	g      singleton.Guarded
	jobs   int
	ended  bool
	doneAt time.Time // when its context was, as far as it is
	state  string    // that it left
	warm   bool      // it began with one
}

// simChild is a Stateful child that misbehaves in times of trouble.
type simChild struct {
	s        *sim
	n        *node
	l        *simLife
	restored string
}

// child makes children, in times of trouble not always.
func (s *sim) child(n *node) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor {
		s.beBad(n, 31)
		return &simChild{s: s, n: n}
	}, actor.WithSpawnFunc(func(system *actor.ActorSystem, id string, props *actor.Props, parent actor.SpawnerContext) (*actor.PID, error) {
		pid, err := actor.DefaultSpawner(system, id, props, parent)
		if s.odds(4, 36, s.seed) == 0 { // it runs already
			s.beBad(n, 37)
		}
		return pid, err
	}))
}

// beBad is what code does that makes children.
func (s *sim) beBad(n *node, salt uint64) {
	if s.good.Load() {
		return
	}
	s.mu.Lock()
	s.made++
	number := uint64(s.made)
	s.mu.Unlock()
	switch s.odds(30, salt, number) {
	case 0, 1:
		panic("bad props")
	case 3, 4:
		s.hang(n, time.Duration(s.odds(60000, 38, number))*time.Millisecond)
	}
}

// hang does not return for that long, or until trouble is over, and checks that its
// manager says so, which it can't unless it goes on.
func (s *sim) hang(n *node, d time.Duration) {
	s.mu.Lock()
	m, told, excused := s.newest(n), s.slow[n], s.excused
	s.mu.Unlock()
	s.logf("%s: its Props hang", n.id)
	began := time.Now()
	s.await(d)
	over := m == nil || ended(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log("%s: its Props return", n.id)
	if time.Since(began) > toldAfter && !over && !s.rude && s.slow[n] == told && s.excused == excused && !s.out[n] {
		s.fail("%s: nothing is said of Props that hung for %v", n.id, time.Since(began))
	}
}

// await returns after that long, or when trouble is over.
func (s *sim) await(d time.Duration) {
	for began := time.Now(); time.Since(began) < d && !s.good.Load(); {
		time.Sleep(100 * time.Millisecond)
	}
}

// toldAfter is when Props that hang have been told of, by the slowest clock.
const toldAfter = 6 * time.Second

// misbehave is a subscriber of the EventStream that does, in times of trouble.
func (s *sim) misbehave(sl *slot, n *node, evt any) {
	event, ours := evt.(singleton.Event)
	_, letter := evt.(*actor.DeadLetterEvent)
	_, failure := evt.(*actor.SupervisorEvent)
	_, link := evt.(*remote.EndpointTerminatedEvent)
	if s.good.Load() || !ours && !letter && !failure && !link {
		return
	}
	s.mu.Lock()
	s.told++
	what := s.odds(16, 32, uint64(s.told))
	m := s.newest(n)
	if s.out[n] {
		m = nil
	}
	j := job{Number: 1_000_000 + s.told}
	s.mu.Unlock()
	switch {
	case what < 6:
		panic("a subscriber's bug")
	case what == 6 && (ours || link):
		s.logf("%s: a subscriber hangs at %T %v", sl.id, evt, event.Kind)
		time.Sleep(time.Duration(s.odds(5000, 33, uint64(event.Token))) * time.Millisecond)
	case what == 7 && ours && m != nil:
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = m.Status()
		s.sent(j)
		_, err := singleton.Ask[done](ctx, m, j)
		s.logf("%s: a subscriber asked %v at %v: %v", sl.id, j, event.Kind, err)
	}
}

// odds is a random number that is the same whenever the history is replayed.
func (s *sim) odds(n int, what ...uint64) int {
	h := s.seed
	for _, w := range what {
		h = rand.New(rand.NewPCG(h, w)).Uint64()
	}
	return int(h % uint64(n))
}

// Receive implements actor.Actor.
func (k *simChild) Receive(ctx actor.Context) {
	k.s.busy.Add(1)
	defer k.s.busy.Add(-1)
	if j, ok := jobOf(ctx.Message()); ok {
		k.handle(ctx, j)
		return
	}
	switch ctx.Message().(type) {
	case *actor.Started:
		k.born(ctx)
	case bye:
		if !k.s.good.Load() && k.s.odds(4, 1, uint64(k.l.id)) == 0 {
			time.Sleep(time.Duration(k.s.odds(15000, 2, uint64(k.l.id))) * time.Millisecond)
			return // nor does it stop
		}
		time.Sleep(k.s.lastWork(k.l))
		k.s.part()
		ctx.Stop(ctx.Self())
	case *actor.Stopping:
		k.checkContext("Stopping")
		k.s.part()
		if !k.s.good.Load() && k.s.odds(3, 3, uint64(k.l.id)) == 0 {
			time.Sleep(time.Duration(k.s.odds(5000, 4, uint64(k.l.id))) * time.Millisecond)
		}
	case *actor.Stopped:
		k.died()
	}
}

func (k *simChild) handle(ctx actor.Context, j job) {
	s := k.s
	s.mu.Lock()
	k.l.jobs++
	s.order = append(s.order, j)
	if f := s.fates[j]; f != nil {
		f.handled++
		s.cameTo(f)
	}
	crowd := s.crowd
	s.mu.Unlock()
	if ctx.Sender() != nil {
		ctx.Respond(done{Number: j.Number, Token: k.l.token, Node: k.n.id})
	}
	if crowd {
		time.Sleep(s.labour(j))
		return
	}
	if s.good.Load() {
		time.Sleep(time.Duration(s.odds(600, 5, uint64(j.Number))) * time.Microsecond)
		return
	}
	switch s.odds(40, 6, uint64(j.Number)) {
	case 0:
		panic("a bad job")
	case 1:
		ctx.Stop(ctx.Self())
	case 2, 3:
		time.Sleep(1500 * time.Millisecond)
	case 4:
		time.Sleep(longest / 15000 * time.Duration(s.odds(15000, 7, uint64(j.Number))))
	}
}

// longest is for how long a child that misbehaves may do so at a stretch.
const longest = 15 * time.Second

// born checks that what was restored is what the last child left, all of it.
func (k *simChild) born(ctx actor.Context) {
	g, ok := singleton.Of(ctx)
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	s := k.s
	if !ok {
		s.fail("a child without its gate")
	}
	l := &simLife{id: len(s.lives), on: k.n, token: g.Token(), g: g, warm: k.restored != ""}
	k.l = l
	var last *simLife
	if len(s.lives) > 0 {
		last = s.lives[len(s.lives)-1]
		if last.on != k.n && last.token >= l.token {
			s.fail("I2: a child under token %d after one under %d", l.token, last.token)
		}
	}
	if k.restored != "" && (last == nil || !last.ended || last.state != k.restored || last.token >= l.token) {
		s.fail("%s began with %q, but the last child was %+v", k.n.id, k.restored, last)
	}
	for _, x := range s.lives {
		if x.on == k.n && !x.ended {
			s.fail("I4: a second child on %s, under %d and %d", k.n.id, x.token, l.token)
		}
	}
	s.lives = append(s.lives, l)
	s.log("%s: child %d under %d begins with %q", k.n.id, l.id, l.token, k.restored)
	if k.restored != "" {
		s.warm++
	}
	context.AfterFunc(g.Context(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		l.doneAt = time.Now()
	})
}

func (k *simChild) died() {
	k.checkContext("Stopped")
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	k.l.ended = true
	k.s.log("%s: child %d under %d ends", k.n.id, k.l.id, k.l.token)
}

// checkContext checks I3: who is stopped for a loss finds its context done.
func (k *simChild) checkContext(in string) {
	if k.l.g.CheckAlive() || k.l.g.Context().Err() != nil {
		return
	}
	time.Sleep(time.Nanosecond) // it may have been lost at this moment
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	if k.l.g.Context().Err() == nil && !k.s.out[k.n] {
		k.s.fail("I3: %s sees %s after a loss, and its context is not done", k.n.id, in)
	}
}

// HandOverState implements hosting.Stateful.
func (k *simChild) HandOverState() ([]byte, error) {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	if !k.l.ended {
		k.s.fail("asked for its state before it ended")
	}
	if !k.s.good.Load() {
		simulate.Break(k.s.odds(10, 43, uint64(k.l.id)))
	}
	k.l.state = fmt.Sprintf("child %d, %d jobs", k.l.id, k.l.jobs)
	return []byte(k.l.state), nil
}

// RestoreState implements hosting.Stateful.
func (k *simChild) RestoreState(state []byte) error {
	k.restored = string(state)
	if !k.s.good.Load() {
		n := k.s.odds(15, 8, uint64(len(state)))
		if simulate.Break(n); n == 2 {
			return errors.New("not today")
		}
	}
	return nil
}
