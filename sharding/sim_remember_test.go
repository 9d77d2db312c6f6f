package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding"
)

// TestSimulationOfRemembered runs random histories of remembered entities: several
// generations of a type, each with another number of shards; nodes that crash, are cut
// off from their store, restart their Region within one process, or have the ID of
// another; a store of entities that is slow, fails, and has its caller die on it.
//
// Checked: no entity ever runs twice, or in a shard that is not its own; after each
// trouble all that are remembered run, and none that was forgotten; a node whose ID
// another has does not join while that one answers, and hands all over if it did.
func TestSimulationOfRemembered(t *testing.T) {
	suite.Run(t, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			defer func() { time.Sleep(2 * ttl); synctest.Wait() }()
			c := &cluster{t: t, store: memory.New(), net: memnet.New()}
			c.log.t = t
			defer c.cleanUp()
			s := newMemories(c, seed)
			for g := range 2 + s.r.IntN(3) {
				s.generation(g)
			}
			require.NotEmpty(t, s.must)
		})
	})
}

// TestTheTwinOfATwinIsAnother: what is noted to run on one node stays noted when another
// crashes that has had its ID.
func TestTheTwinOfATwinIsAnother(t *testing.T) {
	bubble(t, func(c *cluster) {
		s := newMemories(c, 1)
		s.shards = 12
		for _, id := range []string{"a", "b"} {
			n := s.node(id)
			s.start(n)
			s.nodes = append(s.nodes, n)
		}
		for last := range 2 { // b, and the one that came after it
			n := s.nodes[last+1]
			for len(s.nodes) < last+3 { // it may answer
				time.Sleep(2 * ttl)
				s.twin(n)
			}
			for range 60 {
				s.wake(s.nodes[0])
			}
			time.Sleep(5 * time.Second) // each has its part
			s.crash(n)
		}
		s.judge()
	})
}

// memories is one history.
type memories struct {
	t      testing.TB
	c      *cluster
	r      *simulate.Random
	seed   uint64
	shards int
	store  *shaky
	nodes  []*node
	lives  int
	jobs   int

	must, may, gone map[string]bool // ids that are remembered, may be, and were forgotten
	told            map[string]bool // ids that were told to be forgotten, which may come at any time

	cut map[*node]time.Time // when it was cut off from its store last

	mu    sync.Mutex
	dead  map[*node]bool
	wrong []string
}

func newMemories(c *cluster, seed uint64) *memories {
	return &memories{t: c.t, c: c, r: suite.Random(seed), seed: seed,
		store: &shaky{EntityStore: sharding.NewMemoryEntities(), r: rand.New(rand.NewPCG(seed, 1))},
		must:  map[string]bool{}, may: map[string]bool{}, gone: map[string]bool{}, told: map[string]bool{},
		cut: map[*node]time.Time{}, dead: map[*node]bool{}}
}

// shaky is a store of entities that is slow and fails.
type shaky struct {
	sharding.EntityStore
	mu     sync.Mutex
	r      *rand.Rand
	bad    bool
	silent bool   // no call is answered
	trip   int    // at which call from now on: 0 none
	die    func() // its caller
}

func (s *shaky) do(ctx context.Context, f func() error) error {
	s.mu.Lock()
	trips, die := s.trip == 1, s.die
	s.trip = max(0, s.trip-1)
	silent := s.silent
	fails, before, slow := s.bad && s.r.IntN(4) == 0, s.r.IntN(2) == 0, time.Duration(s.r.IntN(5))*time.Millisecond
	s.mu.Unlock()
	if trips {
		die()
		<-ctx.Done()
		return ctx.Err()
	}
	if silent {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(slow)
	if fails && before {
		return errors.New("shaky")
	}
	if err := f(); err != nil || !fails {
		return err
	}
	return errors.New("shaky, and applied")
}

func (s *shaky) Load(ctx context.Context, o lease.Ownership) (ids []string, err error) {
	err = s.do(ctx, func() error { ids, err = s.EntityStore.Load(ctx, o); return err })
	return ids, err
}

func (s *shaky) Update(ctx context.Context, o lease.Ownership, add, remove []string) error {
	return s.do(ctx, func() error { return s.EntityStore.Update(ctx, o, add, remove) })
}

func (s *shaky) set(bad bool, trip int, die func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bad, s.trip, s.die = bad, trip, die
}

// mortal is an account that can be told to be forgotten.
type mortal struct {
	account
	s      *memories
	shards int
}

func (m *mortal) Receive(ctx actor.Context) {
	if _, ok := ctx.Message().(*actor.Started); ok {
		m.s.mu.Lock()
		defer m.s.mu.Unlock()
		if m.s.dead[m.n] { // what its process would not come to
			ctx.Stop(ctx.Self())
			return
		}
		if e, ok := sharding.Of(ctx); ok && e.Shard() != sharding.ShardOf(e.ID(), m.shards) {
			m.s.wrong = append(m.s.wrong, fmt.Sprintf("%s in shard %d of %d", e.ID(), e.Shard(), m.shards))
		}
	}
	if _, ok := ctx.Message().(*actor.Started); !ok && m.self == nil {
		return // it never began
	}
	if _, ok := ctx.Message().(forget); ok {
		m.self.Forget()
		return
	}
	m.account.Receive(ctx)
}

func (s *memories) start(n *node) {
	shards := s.shards
	n.startType(sharding.Type{Name: "account", Shards: shards, Props: actor.PropsFromProducer(func() actor.Actor {
		return &mortal{account{n: n}, s, shards}
	})}, sharding.WithRemember(s.store, 0), sharding.WithSettle(200*time.Millisecond))
}

// node makes a node that has joined, in a place of its own.
func (s *memories) node(id string) *node {
	s.lives++
	n := s.c.nodeAt(id, fmt.Sprint("at", s.lives, ":1"))
	n.join()
	return n
}

func (s *memories) up() []*node {
	return slices.DeleteFunc(slices.Clone(s.nodes), func(n *node) bool { return n.dead })
}

func (s *memories) crash(n *node) {
	s.mu.Lock()
	s.dead[n] = true
	s.mu.Unlock()
	n.crash()
	s.c.log.died(n.id)
}

// generation is the time of one number of shards.
func (s *memories) generation(g int) {
	s.shards = 1 + s.r.IntN(24)
	s.nodes = nil
	if g > 0 && s.r.IntN(2) == 0 { // who is first dies on the move of what is remembered
		first := s.c.nodeAt(fmt.Sprint("first", g), fmt.Sprint("first", g, ":1"))
		first.join()
		s.store.set(false, 1+s.r.IntN(2+2*s.shards), func() { s.crash(first) })
		s.start(first)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !first.dead {
			s.crash(first)
		}
		s.store.set(false, 0, nil)
		if s.r.IntN(2) == 0 {
			time.Sleep(2 * ttl)
			s.shards = 1 + s.r.IntN(24)
		}
	}
	for i := range 2 + s.r.IntN(2) {
		n := s.node(fmt.Sprint("g", g, "n", i))
		s.start(n)
		s.nodes = append(s.nodes, n)
	}
	for range 15 {
		if s.r.Step() {
			s.act()
		}
		time.Sleep(time.Duration(s.r.IntN(3000)) * time.Millisecond)
	}
	s.judge()
	silent := s.r.IntN(2) == 0
	s.store.mu.Lock()
	s.store.silent = silent
	s.store.mu.Unlock()
	calm := true
	for i, n := range s.up() { // planned, or all at once
		if s.r.IntN(3) == 0 {
			s.crash(n)
			calm = false
			continue
		}
		began := time.Now()
		require.NoError(s.t, n.region.Stop(context.Background()), "seed %d", s.seed)
		if calm && len(s.up()) > i+1 {
			require.Less(s.t, time.Since(began), plannedWithin, "seed %d, the store answers: %t", s.seed, !silent)
		}
		require.NoError(s.t, n.group.Leave(context.Background()), "seed %d", s.seed)
	}
	s.store.mu.Lock()
	s.store.silent = false
	s.store.mu.Unlock()
	time.Sleep(2 * ttl)
}

// plannedWithin is how long a node takes to hand all over and to end, whether the store of
// what is remembered answers or not.
const plannedWithin = 6 * time.Second

// act does one random thing.
func (s *memories) act() {
	up := s.up()
	n := up[s.r.IntN(len(up))]
	switch what := s.r.IntN(16); {
	case what == 0 && len(up) > 1:
		s.crash(n)
	case what == 1 && len(s.nodes) < 6:
		x := s.node(fmt.Sprint("n", s.lives))
		s.start(x)
		s.nodes = append(s.nodes, x)
	case what <= 3: // its Region restarts
		require.NoError(s.t, n.region.Stop(context.Background()), "seed %d", s.seed)
		s.start(n)
	case what == 4:
		n.store.Partition()
		time.Sleep(time.Duration(s.r.Int64N(int64(2 * ttl))))
		n.store.Heal()
		s.cut[n] = time.Now()
	case what == 5:
		s.store.set(true, 0, nil)
	case what == 6:
		s.store.set(false, 0, nil)
	case what <= 8:
		s.twin(n)
	case what == 9:
		id := fmt.Sprint("id", s.r.IntN(30))
		delete(s.must, id)
		delete(s.gone, id)
		s.may[id], s.told[id] = true, true
		_ = n.region.Tell(id, forget{})
	default:
		s.wake(n)
	}
}

// twin has a node join that has the ID of another.
func (s *memories) twin(n *node) {
	answers := s.r.IntN(2) == 0
	if _, is := n.group.Self(); !is || len(s.nodes) > 6 || time.Since(s.cut[n]) < ttl {
		return
	}
	for _, other := range s.up() { // which would object, too
		if other != n && other.keeper.Owner().ID == n.keeper.Owner().ID {
			return
		}
	}
	if !answers {
		n.store.Partition()
	}
	s.lives++
	x := s.c.nodeAt(n.keeper.Owner().ID, fmt.Sprint("at", s.lives, ":1"))
	g, err := membership.Join(context.Background(), x.keeper, "g")
	if !answers {
		n.store.Heal()
		s.cut[n] = time.Now()
	}
	if answers {
		require.ErrorIs(s.t, err, membership.ErrIDInUse, "seed %d", s.seed)
		return
	}
	require.NoError(s.t, err, "seed %d", s.seed)
	x.group = g
	x.id = fmt.Sprint(x.id, "'", s.lives) // in what is noted, where the ID's next twin is another
	s.start(x)
	s.nodes = append(s.nodes, x)
}

// wake sends to an entity, which is remembered once it has answered; unless another node told
// it to be forgotten, which may come behind.
func (s *memories) wake(n *node) {
	s.jobs++
	id := fmt.Sprint("id", s.r.IntN(30))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	delete(s.gone, id)
	if _, err := sharding.Ask[done](ctx, n.region, id, job{"x", s.jobs}); err == nil && !s.told[id] {
		s.must[id] = true
		delete(s.may, id)
	} else if !s.must[id] {
		s.may[id] = true
	}
}

// judge ends the trouble, and looks at what runs.
func (s *memories) judge() {
	s.store.set(false, 0, nil)
	for _, n := range s.up() {
		n.store.Heal()
	}
	time.Sleep(2*ttl + 10*time.Second)
	s.look("after the trouble")
	for i, id := range slices.Sorted(maps.Keys(s.must)) {
		if i%5 == 0 {
			require.NoError(s.t, s.up()[0].region.Tell(id, forget{}))
			delete(s.must, id)
			s.gone[id] = true
		}
	}
	s.wake(s.up()[0])
	time.Sleep(3 * time.Second)
	s.look("after some were forgotten")
	held := map[string]int{}
	for _, n := range s.up() {
		held[n.id] = n.region.Info().Held
		if err := n.group.Superseded(); err != nil {
			require.Zero(s.t, held[n.id], "seed %d: %s keeps shards though %v", s.seed, n.id, err)
		}
	}
}

func (s *memories) look(when string) {
	s.c.log.mu.Lock()
	live := maps.Clone(s.c.log.live)
	bad := slices.Clone(s.c.log.bad)
	s.c.log.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(s.t, bad, "seed %d: twice", s.seed)
	require.Empty(s.t, s.wrong, "seed %d: elsewhere", s.seed)
	for id := range s.must {
		require.Contains(s.t, live, id, "seed %d, %s, %d shards: remembered", s.seed, when, s.shards)
	}
	for id := range s.gone {
		require.NotContains(s.t, live, id, "seed %d, %s, %d shards: forgotten", s.seed, when, s.shards)
	}
	clear(s.told)
	for id := range s.may { // it is known now
		if delete(s.may, id); live[id] != "" {
			s.must[id] = true
		} else {
			s.gone[id] = true
		}
	}
}
