package sharding_test

import (
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/sharding"
)

// simBye is the stop message of entities that have one.
type simBye struct{}

// simEntity is an entity that misbehaves in times of trouble.
type simEntity struct {
	s        *sim
	n        *testkit.Node
	l        *testkit.Life
	e        *sharding.Entity
	restored string
}

// simKeepsState is a simEntity that is Stateful.
type simKeepsState struct{ simEntity }

func (s *sim) props(n *testkit.Node) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor {
		if k := s.made.Add(1); !s.Good.Load() && s.Odds(4, 10, k) == 0 {
			time.Sleep(time.Duration(s.Odds(400, 11, k)) * time.Millisecond) // what comes meanwhile finds it half made
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
	if s.Odds(2, 12) == 0 {
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
	if s.Good.Load() {
		p.Dispatcher.Schedule(run)
		return
	}
	switch s.Odds(100, 13, k) {
	case 0:
		panic("the pool is closed")
	case 1:
		p.Dispatcher.Schedule(run)
		panic("the pool's statistics are wrong")
	case 2:
		time.Sleep(time.Duration(s.Odds(1500, 14, k)) * time.Millisecond)
		p.Dispatcher.Schedule(run)
	case 3:
		run()
	default:
		p.Dispatcher.Schedule(run)
	}
}

// breaks reports whether on some nodes no entity works until trouble is over.
func (s *sim) breaks() bool { return s.Odds(4, 15) == 0 }

// longest is for how long an entity that misbehaves may do so at a stretch.
const longest = 15 * time.Second

// Receive implements actor.Actor.
func (k *simEntity) Receive(ctx actor.Context) {
	s := k.s
	s.Busy.Add(1)
	defer s.Busy.Add(-1)
	bad, number := !s.Good.Load(), uint64(0)
	if k.l != nil {
		number = uint64(k.l.Number)
	}
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		e, ok := sharding.Of(ctx)
		if !ok || sharding.ShardOf(e.ID(), s.shards) != e.Shard() {
			s.Failf("an entity does not know which it is: %+v", e)
			return
		}
		k.e = e
		k.l = s.Born(&testkit.Life{On: k.n, ID: e.ID(), Lease: e.Name(), Token: e.Token(), Guard: e}, k.restored)
		if bad && (s.Odds(30, 8, uint64(k.l.Number)) == 0 || s.breaks() && s.Odds(2, 16, uint64(k.n.ID[1])) == 0) {
			panic("born bad")
		}
	case simBye:
		s.Mu.Lock()
		k.l.Asked = true
		s.Mu.Unlock()
		if bad && s.Odds(4, 1, number) == 0 {
			s.Nap(longest, 2, number)
			return // nor does it stop
		}
		time.Sleep(s.LastWork(k.l, 10))
		ctx.Stop(ctx.Self())
	case *actor.Stopping:
		if bad && s.Odds(6, 3, number) == 0 {
			s.Nap(5*time.Second, 4, number)
		}
	case *actor.Stopped:
		s.Died(k.l)
	default:
		if j, ok := testkit.JobOf(msg); ok {
			k.handle(ctx, j)
		}
	}
}

func (k *simEntity) handle(ctx actor.Context, j testkit.Job) {
	s := k.s
	s.Handle(k.l, j)
	if ctx.Sender() != nil {
		ctx.Respond(done{k.l.ID, j.Number, k.l.Token, k.n.ID})
	}
	if stay := s.staying(j); stay != nil {
		<-stay
		return
	}
	time.Sleep(s.Labour(j))
	if s.Good.Load() {
		switch s.Odds(200, 5, uint64(j.Number)) {
		case 0:
			k.e.Passivate()
		case 1:
			time.Sleep(50 * time.Millisecond)
		case 2:
			ctx.Stop(ctx.Self())
		default:
			time.Sleep(time.Duration(s.Odds(300, 6, uint64(j.Number))) * time.Microsecond)
		}
		return
	}
	switch s.Odds(60, 7, uint64(j.Number)) {
	case 0:
		panic("a bad job")
	case 1:
		ctx.Stop(ctx.Self())
	case 2:
		k.e.Passivate()
	case 3, 4:
		time.Sleep(1500 * time.Millisecond)
	case 5:
		s.Nap(longest, 9, uint64(j.Number))
	}
}

// HandOverState implements hosting.Stateful.
func (k *simKeepsState) HandOverState() ([]byte, error) { return k.s.Leave(k.l) }

// RestoreState implements hosting.Stateful.
func (k *simKeepsState) RestoreState(state []byte) error {
	k.restored = string(state)
	if !k.s.Good.Load() {
		simulate.Break(k.s.Odds(10, 52, uint64(len(state)), k.s.made.Load()))
	}
	return nil
}
