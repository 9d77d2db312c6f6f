package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

func (j *journal) living() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.live)
}

// An entity that nobody sends to is stopped, and a message starts it again; no
// message is lost on the edge.
func TestIdleEntitiesArePassivated(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.hosting("a", 4, sharding.WithPassivation(time.Second))[0]
		for i := range 20 {
			require.NoError(t, n.region.Tell(fmt.Sprint("id", i), job{"x", 1}))
		}
		time.Sleep(900 * time.Millisecond)
		require.Equal(t, 20, c.log.living())
		for i := range 10 {
			require.NoError(t, n.region.Tell(fmt.Sprint("id", i), job{"x", 2}))
		}
		time.Sleep(800 * time.Millisecond)
		require.Equal(t, 10, c.log.living(), "those that were not used")
		time.Sleep(time.Second)
		require.Zero(t, c.log.living())
		require.EqualValues(t, 20, n.region.Info().Passivated)
		require.Zero(t, n.region.Info().Entities)
		for k := 3; k < 40; k++ { // around the edge, again and again
			for i := range 10 {
				require.NoError(t, n.region.Tell(fmt.Sprint("id", i), job{"x", k}))
			}
			time.Sleep(time.Second + time.Duration(k)*10*time.Millisecond)
		}
		for i := range 10 {
			c.log.complete("x", fmt.Sprint("id", i), 39)
		}
		c.log.check()
		c.whole(n)
	})
}

// Beyond the bound those that were not used the longest are stopped.
func TestTheOldestAreStoppedBeyondTheBound(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.hosting("a", 4, sharding.WithMaxActive(20))[0]
		for i := range 100 {
			require.NoError(t, n.region.Tell(fmt.Sprint("id", i), job{"x", 1}))
			require.NoError(t, n.region.Tell("favourite", job{"x", i + 1}))
			time.Sleep(20 * time.Millisecond)
			require.LessOrEqual(t, c.log.living(), 22)
		}
		c.log.complete("x", "favourite", 100)
		for i := range 100 {
			c.log.complete("x", fmt.Sprint("id", i), 1)
		}
		c.log.check()
	})
}

// guest does as it is told.
type guest struct {
	self  *sharding.Entity
	lives *atomic.Int32
	seen  int
}

type (
	goAway   struct{}
	forget   struct{}
	collapse struct{}
	howMany  struct{}
	refMe    struct{}
)

func (g *guest) Receive(ctx actor.Context) {
	switch ctx.Message().(type) {
	case *actor.Started:
		g.self, _ = sharding.Of(ctx)
		g.lives.Add(1)
	case goAway:
		g.self.Passivate()
	case forget:
		g.self.Forget()
	case collapse:
		panic("as asked")
	case howMany:
		g.seen++
		ctx.Respond(g.seen)
	case refMe:
		ctx.Respond(g.self.Ref())
	}
}

func guests(lives *atomic.Int32) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor { return &guest{lives: lives} })
}

// An entity may ask to be stopped; what is sent behind that starts it anew.
func TestAnEntityPassivatesItself(t *testing.T) {
	bubble(t, func(c *cluster) {
		var lives atomic.Int32
		n := c.node("a")
		r := n.startType(sharding.Type{Name: "account", Shards: 4, Props: guests(&lives)})
		c.settled(5*time.Second, n)
		for range 50 {
			require.NoError(t, r.Tell("x", goAway{}))
			got, err := sharding.Ask[int](contextFor(time.Second), r, "x", howMany{})
			require.NoError(t, err)
			require.Positive(t, got)
		}
		require.Greater(t, lives.Load(), int32(40))
		ref, err := sharding.Ask[*actor.PID](contextFor(time.Second), r, "x", refMe{})
		require.NoError(t, err)
		require.NoError(t, r.Tell("x", goAway{}))
		time.Sleep(time.Second)
		got, err := askPID[int](contextFor(time.Second), n.system, ref, howMany{})
		require.NoError(t, err, "a Ref outlives the entity")
		require.Equal(t, 1, got)
	})
}

// An entity that panics is started again after a pause that grows; its mail waits.
func TestAnEntityThatPanicsComesBack(t *testing.T) {
	bubble(t, func(c *cluster) {
		var lives atomic.Int32
		n := c.node("a")
		var crashes atomic.Int32
		n.system.EventStream.Subscribe(func(e any) {
			if e, ok := e.(sharding.Event); ok && e.Kind == sharding.EntityCrashed && e.ID == "a/b%c" && e.Panic == "as asked" {
				crashes.Add(1)
			}
		})
		r := n.startType(sharding.Type{Name: "account", Shards: 4, Props: guests(&lives)},
			sharding.WithBackoff(100*time.Millisecond, time.Second))
		c.settled(5*time.Second, n)
		for i := range 5 {
			require.NoError(t, r.Tell("a/b%c", collapse{}))
			began := time.Now()
			got, err := sharding.Ask[int](contextFor(3*time.Second), r, "a/b%c", howMany{})
			require.NoError(t, err)
			require.Equal(t, 1, got, "a new actor")
			require.GreaterOrEqual(t, time.Since(began), min(100*time.Millisecond<<i, time.Second)/2)
		}
		require.EqualValues(t, 5, crashes.Load())
		require.EqualValues(t, 5, r.Info().Crashes)
	})
}

// What is remembered is started again: after a hand-off, a crash, and a restart of
// everything; what was forgotten is not.
func TestRememberedEntitiesComeBack(t *testing.T) {
	bubble(t, func(c *cluster) {
		var lives atomic.Int32
		store := sharding.NewMemoryEntities()
		run := func(n *node) *sharding.Region {
			return n.startType(sharding.Type{Name: "account", Shards: 8, Props: guests(&lives)}, sharding.WithRemember(store, 0))
		}
		ns := c.nodes("a", "b")
		for _, n := range ns {
			run(n)
		}
		c.settled(5*time.Second, ns...)
		for i := range 40 {
			_, err := sharding.Ask[int](contextFor(time.Second), ns[0].region, fmt.Sprint("id", i), howMany{})
			require.NoError(t, err)
		}
		for i := range 10 {
			require.NoError(t, ns[1].region.Tell(fmt.Sprint("id", i), forget{}))
		}
		time.Sleep(time.Second)
		require.Equal(t, 30, ns[0].region.Info().Entities+ns[1].region.Info().Entities)
		require.NoError(t, ns[0].region.Drain(context.Background()))
		time.Sleep(2 * time.Second)
		require.Equal(t, 30, ns[1].region.Info().Entities, "after a hand-off")
		ns[0].region.Undrain()
		c.settled(20*time.Second, ns...)
		ns[1].crash()
		time.Sleep(ttl + 5*time.Second)
		require.Equal(t, 30, ns[0].region.Info().Entities, "after a crash")
		require.NoError(t, ns[0].region.Stop(context.Background()))
		run(ns[0])
		time.Sleep(5 * time.Second)
		require.Equal(t, 30, ns[0].region.Info().Entities, "after a restart of everything")
	})
}

// failing is a store of entities that fails at times.
type failing struct {
	sharding.EntityStore
	mu   sync.Mutex
	down bool
}

func (f *failing) Load(ctx context.Context, o lease.Ownership) ([]string, error) {
	if f.fails() {
		return nil, errors.New("down")
	}
	return f.EntityStore.Load(ctx, o)
}

func (f *failing) Update(ctx context.Context, o lease.Ownership, add, remove []string) error {
	if f.fails() {
		panic("down")
	}
	return f.EntityStore.Update(ctx, o, add, remove)
}

func (f *failing) fails() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.down }

func (f *failing) set(down bool) { f.mu.Lock(); defer f.mu.Unlock(); f.down = down }

// An entity gets no message before it is remembered; while the store is away its
// mail waits.
func TestMailWaitsForTheStore(t *testing.T) {
	bubble(t, func(c *cluster) {
		store := &failing{EntityStore: sharding.NewMemoryEntities()}
		n := c.hosting("a", 4, sharding.WithRemember(store, 0))[0]
		require.NoError(t, n.region.Tell("old", job{"x", 1}))
		time.Sleep(time.Second)
		store.set(true)
		for k := 1; k <= 5; k++ {
			require.NoError(t, n.region.Tell("new", job{"x", k}))
			require.NoError(t, n.region.Tell("old", job{"x", k + 1}))
		}
		time.Sleep(10 * time.Second)
		c.log.complete("x", "old", 6)
		require.Equal(t, 6, c.log.total())
		store.set(false)
		time.Sleep(10 * time.Second)
		c.log.complete("x", "new", 5)
	})
}
