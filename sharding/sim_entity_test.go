package sharding_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

// simBye is the stop message of entities that have one.
type simBye struct{}

// simLife is one entity, from Started to Stopped.
type simLife struct {
	number int
	on     *node
	id     string
	shard  string // its lease
	token  lease.Token
	e      *sharding.Entity
	jobs   int
	asked  bool // to stop, which it may not do
	ended  bool
	doneAt time.Time // when its context was, as far as it is
	state  string    // that it left
}

// simEntity is an entity that misbehaves in times of trouble.
type simEntity struct {
	s        *sim
	n        *node
	l        *simLife
	restored string
}

// simKeepsState is a simEntity that is Stateful.
type simKeepsState struct{ simEntity }

func (s *sim) props(n *node) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor {
		if k := s.made.Add(1); !s.good.Load() && s.odds(4, 10, k) == 0 {
			time.Sleep(time.Duration(s.odds(400, 11, k)) * time.Millisecond) // what comes meanwhile finds it half made
		}
		if s.stateful {
			return &simKeepsState{simEntity{s: s, n: n}}
		}
		return &simEntity{s: s, n: n}
	}, actor.WithOnInit(func(ctx actor.Context) { s.hangs(n, ctx.Self().Id) }), actor.WithDispatcher(s.dispatcher()))
}

// dispatcher is that of a node's entities: protoactor's, or one that misbehaves in times of trouble.
func (s *sim) dispatcher() actor.Dispatcher {
	d := actor.NewDefaultDispatcher(300)
	if s.odds(2, 12) == 0 {
		return d
	}
	return &simPool{Dispatcher: d, s: s}
}

// simPool is a dispatcher that is closed, full or in the way at times.
type simPool struct {
	actor.Dispatcher
	s     *sim
	count atomic.Uint64
}

func (p *simPool) Schedule(run func()) {
	s, k := p.s, p.count.Add(1)
	if s.good.Load() {
		p.Dispatcher.Schedule(run)
		return
	}
	switch s.odds(100, 13, k) {
	case 0:
		panic("the pool is closed")
	case 1:
		p.Dispatcher.Schedule(run)
		panic("the pool's statistics are wrong")
	case 2:
		time.Sleep(time.Duration(s.odds(1500, 14, k)) * time.Millisecond)
		p.Dispatcher.Schedule(run)
	case 3:
		run()
	default:
		p.Dispatcher.Schedule(run)
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

// longest is for how long an entity that misbehaves may do so at a stretch.
const longest = 15 * time.Second

// Receive implements actor.Actor.
func (k *simEntity) Receive(ctx actor.Context) {
	s := k.s
	s.busy.Add(1)
	defer s.busy.Add(-1)
	bad := !s.good.Load()
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		k.born(ctx)
		if bad && s.odds(30, 8, uint64(k.l.number)) == 0 {
			panic("born bad")
		}
	case simBye:
		s.mu.Lock()
		k.l.asked = true
		s.mu.Unlock()
		if bad && s.odds(4, 1, uint64(k.l.number)) == 0 {
			time.Sleep(time.Duration(s.odds(int(longest/time.Millisecond), 2, uint64(k.l.number))) * time.Millisecond)
			return // nor does it stop
		}
		time.Sleep(s.lastWork(k.l))
		ctx.Stop(ctx.Self())
	case *actor.Stopping:
		if bad && s.odds(6, 3, uint64(k.l.number)) == 0 {
			time.Sleep(time.Duration(s.odds(5000, 4, uint64(k.l.number))) * time.Millisecond)
		}
	case *actor.Stopped:
		k.died()
	default:
		if j, ok := jobOf(msg); ok {
			k.handle(ctx, j)
		}
	}
}

func (k *simEntity) handle(ctx actor.Context, j job) {
	s := k.s
	s.handled(k.l, j)
	if ctx.Sender() != nil {
		ctx.Respond(done{k.l.id, j.Number, k.l.token, k.n.id})
	}
	if stay := s.staying(j); stay != nil {
		<-stay
		return
	}
	time.Sleep(s.labour(j))
	if s.good.Load() {
		switch s.odds(200, 5, uint64(j.Number)) {
		case 0:
			k.l.e.Passivate()
		case 1:
			time.Sleep(50 * time.Millisecond)
		case 2:
			ctx.Stop(ctx.Self())
		default:
			time.Sleep(time.Duration(s.odds(300, 6, uint64(j.Number))) * time.Microsecond)
		}
		return
	}
	switch s.odds(60, 7, uint64(j.Number)) {
	case 0:
		panic("a bad job")
	case 1:
		ctx.Stop(ctx.Self())
	case 2:
		k.l.e.Passivate()
	case 3, 4:
		time.Sleep(1500 * time.Millisecond)
	case 5:
		time.Sleep(time.Duration(s.odds(int(longest/time.Millisecond), 9, uint64(j.Number))) * time.Millisecond)
	}
}

// born checks I1 and I2 as far as entities go.
func (k *simEntity) born(ctx actor.Context) {
	s := k.s
	e, ok := sharding.Of(ctx)
	if !ok {
		s.failf("an entity does not know which it is")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &simLife{number: len(s.lives), on: k.n, id: e.ID(), shard: e.Name(), token: e.Token(), e: e}
	k.l = l
	if sharding.ShardOf(l.id, s.shards) != e.Shard() {
		s.fail("%s is in shard %d", l.id, e.Shard())
	}
	for _, x := range s.living[l.shard] {
		switch {
		case x.id != l.id:
		case x.on == k.n:
			s.fail("I1: a second %s on %s, under %d and %d", l.id, k.n.id, x.token, l.token)
		case x.e.CheckAlive():
			s.fail("I1: %s on %s under %d, while it lives on %s under %d", l.id, k.n.id, l.token, x.on.id, x.token)
		}
	}
	last := s.latest[l.id]
	if last != nil && (last.token > l.token || last.on != k.n && last.token == l.token) {
		s.fail("I2: %s under token %d after one under %d", l.id, l.token, last.token)
	}
	if k.restored != "" && (last == nil || !last.ended || last.state != k.restored || last.token >= l.token) {
		s.fail("%s on %s began with %q, but the last was %+v", l.id, k.n.id, k.restored, last)
	}
	if k.restored != "" {
		s.warm++
	}
	s.lives = append(s.lives, l)
	s.latest[l.id] = l
	s.living[l.shard] = append(s.living[l.shard], l)
	context.AfterFunc(e.Context(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		l.doneAt = time.Now()
	})
}

func (k *simEntity) died() {
	s := k.s
	s.mu.Lock()
	defer s.mu.Unlock()
	k.l.ended = true
	rest := s.living[k.l.shard]
	for i, x := range rest {
		if x == k.l {
			s.living[k.l.shard] = append(rest[:i:i], rest[i+1:]...)
			break
		}
	}
}

// HandOverState implements hosting.Stateful.
func (k *simKeepsState) HandOverState() ([]byte, error) {
	s := k.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !k.l.ended {
		s.fail("%s is asked for its state before it ended", k.l.id)
	}
	if !s.good.Load() {
		simulate.Break(s.odds(10, 51, uint64(k.l.number)))
	}
	k.l.state = fmt.Sprintf("life %d of %s, %d jobs", k.l.number, k.l.id, k.l.jobs)
	return []byte(k.l.state), nil
}

// RestoreState implements hosting.Stateful.
func (k *simKeepsState) RestoreState(state []byte) error {
	k.restored = string(state)
	if !k.s.good.Load() {
		simulate.Break(k.s.odds(10, 52, uint64(len(state)), k.s.made.Load()))
	}
	return nil
}
