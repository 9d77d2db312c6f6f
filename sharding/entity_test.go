package sharding_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
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
		n := c.node("a")
		n.start(4, sharding.WithPassivation(time.Second))
		c.settled(5*time.Second, n)
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
		n := c.node("a")
		n.start(4, sharding.WithMaxActive(20))
		c.settled(5*time.Second, n)
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
			got, err := sharding.Ask[int](contextFor(t, time.Second), r, "x", howMany{})
			require.NoError(t, err)
			require.Positive(t, got)
		}
		require.Greater(t, lives.Load(), int32(40))
		ref, err := sharding.Ask[*actor.PID](contextFor(t, time.Second), r, "x", refMe{})
		require.NoError(t, err)
		require.NoError(t, r.Tell("x", goAway{}))
		time.Sleep(time.Second)
		got, err := singleton.AskPID[int](contextFor(t, time.Second), n.system, ref, howMany{})
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
		r := n.startType(sharding.Type{Name: "account", Shards: 4, Props: guests(&lives)}, sharding.WithBackoff(100*time.Millisecond, time.Second))
		c.settled(5*time.Second, n)
		for i := range 5 {
			require.NoError(t, r.Tell("a/b%c", collapse{}))
			began := time.Now()
			got, err := sharding.Ask[int](contextFor(t, 3*time.Second), r, "a/b%c", howMany{})
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
			_, err := sharding.Ask[int](contextFor(t, time.Second), ns[0].region, fmt.Sprint("id", i), howMany{})
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

func (f *failing) Load(ctx context.Context, o sharding.Ownership) ([]string, error) {
	if f.fails() {
		return nil, errors.New("down")
	}
	return f.EntityStore.Load(ctx, o)
}

func (f *failing) Update(ctx context.Context, o sharding.Ownership, add, remove []string) error {
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
		n := c.node("a")
		n.start(4, sharding.WithRemember(store, 0))
		c.settled(5*time.Second, n)
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

// counter has a state that moves with it.
type counter struct {
	n     int
	fail  *atomic.Bool
	cold  *atomic.Int32
	warm  *atomic.Int32
	given bool
}

func (a *counter) Receive(ctx actor.Context) {
	switch ctx.Message().(type) {
	case *actor.Started:
		if a.given {
			a.warm.Add(1)
		} else {
			a.cold.Add(1)
		}
	case howMany:
		a.n++
		ctx.Respond(a.n)
	}
}

func (a *counter) HandOverState() ([]byte, error) {
	if a.fail.Load() {
		return nil, errors.New("no")
	}
	return []byte(strings.Repeat("x", a.n)), nil
}

func (a *counter) RestoreState(state []byte) error {
	a.n, a.given = len(state), true
	return nil
}

// The state of entities moves with a planned hand-over, and a failure is a cold
// start.
func TestStateIsHandedOver(t *testing.T) {
	bubble(t, func(c *cluster) {
		var fail atomic.Bool
		var cold, warm, told atomic.Int32
		props := actor.PropsFromProducer(func() actor.Actor { return &counter{fail: &fail, cold: &cold, warm: &warm} })
		ns := c.nodes("a", "b")
		for _, n := range ns {
			n.system.EventStream.Subscribe(func(e any) {
				if e, ok := e.(sharding.Event); ok && e.Kind == sharding.ColdStart {
					told.Add(1)
				}
			})
			n.startType(sharding.Type{Name: "account", Shards: 4, Props: props}, sharding.WithStateLimit(5))
		}
		c.settled(5*time.Second, ns...)
		all := func(want int) {
			for i := range 20 {
				got, err := sharding.Ask[int](contextFor(t, time.Second), ns[1].region, fmt.Sprint("id", i), howMany{})
				require.NoError(t, err)
				if want > 0 {
					require.Equal(t, want, got)
				}
			}
		}
		for k := range 3 {
			all(k + 1)
		}
		require.EqualValues(t, 20, cold.Load())
		require.NoError(t, ns[0].region.Drain(context.Background()))
		all(4)
		require.NotZero(t, warm.Load())
		require.EqualValues(t, 20, cold.Load())
		ns[0].region.Undrain()
		c.settled(20*time.Second, ns...)
		all(5)
		require.Zero(t, told.Load())
		all(6) // more than the limit
		require.NoError(t, ns[0].region.Drain(context.Background()))
		all(0)
		require.NotZero(t, told.Load())
		require.Greater(t, cold.Load(), int32(20))
	})
}

func TestAnyNodeTellsHowThingsStand(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := []*node{c.node("a", membership.WithCapacity(3)), c.node("b")}
		for _, n := range ns {
			n.start(8)
		}
		p := c.node("p")
		p.start(8, sharding.WithProxyOnly())
		time.Sleep(5 * time.Second)
		for i := range 10 {
			require.NoError(t, p.region.Tell(fmt.Sprint("id", i), job{"x", 1}))
		}
		time.Sleep(time.Second)
		for _, n := range append(ns, p) {
			in := n.region.Info()
			require.Equal(t, []any{"g", "account", n.id, 8, "a"}, []any{in.Group, in.Type, in.Node, in.Shards, in.Coordinator.ID})
			require.Len(t, in.Nodes, 3)
			held := map[string]int{}
			for _, x := range in.Nodes {
				held[x.ID] = x.Shards
				require.Equal(t, x.ID != "p", x.Hosts)
				require.True(t, x.Member)
			}
			require.Equal(t, map[string]int{"a": 6, "b": 2, "p": 0}, held, "by capacity")
		}
		require.Equal(t, 10, ns[0].region.Info().Entities+ns[1].region.Info().Entities)
		require.NotEmpty(t, ns[0].region.Info().Recent)
		for _, m := range ns[0].region.Info().Recent {
			require.False(t, m.At.IsZero())
		}

		all, err := p.region.Survey(contextFor(t, time.Second))
		require.NoError(t, err)
		require.Len(t, all, 3)
		require.Equal(t, 10, all["a"].Entities+all["b"].Entities)
		require.Equal(t, 6, all["a"].Held)
		require.NotEmpty(t, all["a"].Recent)
		require.Len(t, all["p"].Table, 8)
		c.net.Freeze("b:1")
		all, err = p.region.Survey(contextFor(t, time.Second))
		require.ErrorContains(t, err, `no answer from node "b"`)
		require.Len(t, all, 2)
		c.net.Thaw("b:1")

		get := func(method, url string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			p.region.Handler().ServeHTTP(w, httptest.NewRequest(method, url, nil))
			return w
		}
		w := get("GET", "/")
		require.Equal(t, http.StatusOK, w.Code)
		var in sharding.Info
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &in))
		require.Len(t, in.Table, 8)
		require.Equal(t, p.region.Info().Table, in.Table)
		require.Contains(t, get("GET", "/?table=0").Body.String(), `"Table":null`)
		require.Equal(t, http.StatusBadRequest, get("GET", "/?table=x").Code)
		var told map[string]sharding.Info
		require.NoError(t, json.Unmarshal(get("GET", "/?nodes=all").Body.Bytes(), &told))
		require.Len(t, told, 3)
		require.Equal(t, http.StatusMethodNotAllowed, get("POST", "/").Code)
		w = httptest.NewRecorder()
		ns[0].region.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &in), "moves can be read back")
		require.Contains(t, w.Body.String(), `"What":"hosted"`)
	})
}

func TestBadInput(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		props := actor.PropsFromFunc(func(actor.Context) {})
		good := sharding.Type{Name: "x", Props: props, Shards: 4}
		for _, x := range []struct {
			why  string
			typ  sharding.Type
			opts []sharding.Option
		}{
			{"x name", sharding.Type{}, nil},
			{"shards: -1, must be 1 to 65536", sharding.Type{Name: "x", Shards: -1}, nil},
			{"shards: 65537", sharding.Type{Name: "x", Shards: 65537}, nil},
			{"nil Option", good, []sharding.Option{nil}},
			{"WithStrategy: nil", good, []sharding.Option{sharding.WithStrategy(nil)}},
			{"Limits.Moves: -1", good, []sharding.Option{sharding.WithLimits(sharding.Limits{Moves: -1})}},
			{"bound of a shard: 0, must be at least 1", good, []sharding.Option{sharding.WithBuffer(0, 1, sharding.DropNewest)}},
			{"bound in all: 0", good, []sharding.Option{sharding.WithBuffer(1, 0, sharding.DropNewest)}},
			{"unknown policy 9", good, []sharding.Option{sharding.WithBuffer(1, 1, 9)}},
			{"WithStop: 0", good, []sharding.Option{sharding.WithStop(nil, 0)}},
			{"OnStubborn: unknown policy 9", good, []sharding.Option{sharding.OnStubborn(9)}},
			{"WithPassivation: -1", good, []sharding.Option{sharding.WithPassivation(-1)}},
			{"WithPassivation: 1ms, must be 0 or at least 10ms", good, []sharding.Option{sharding.WithPassivation(time.Millisecond)}},
			{"WithMaxActive: -1", good, []sharding.Option{sharding.WithMaxActive(-1)}},
			{"entities a second: -1", good, []sharding.Option{sharding.WithRemember(nil, -1)}},
			{"WithStateLimit: -1", good, []sharding.Option{sharding.WithStateLimit(-1)}},
			{"least: 0", good, []sharding.Option{sharding.WithBackoff(0, 1)}},
			{"most: 1000000, must be at least 2000000", good, []sharding.Option{sharding.WithBackoff(2*time.Millisecond, time.Millisecond)}},
			{"WithLinger: -1", good, []sharding.Option{sharding.WithLinger(-1)}},
			{"WithDepart: -1", good, []sharding.Option{sharding.WithDepart(-1)}},
			{"WithSettle: -1", good, []sharding.Option{sharding.WithSettle(-1)}},
		} {
			_, err := sharding.Start(n.system, n.group, x.typ, x.opts...)
			require.ErrorIs(t, err, lease.ErrInvalid, x.why)
			if x.why != "x name" {
				require.ErrorContains(t, err, x.why)
			}
		}
		_, err := sharding.Start(nil, n.group, good)
		require.ErrorContains(t, err, "system")
		_, err = sharding.Start(n.system, nil, good)
		require.ErrorContains(t, err, "group")
		alone := actor.NewActorSystem(remoting.LogTo(nil))
		_, err = sharding.Start(alone, n.group, good)
		require.ErrorContains(t, err, "start remote before")

		r := n.startType(good)
		_, err = sharding.Start(n.system, n.group, good)
		require.ErrorIs(t, err, sharding.ErrNameInUse)
		for _, id := range []string{"", strings.Repeat("x", sharding.MaxEntityID+1), "\xff"} {
			require.ErrorIs(t, r.Tell(id, job{}), lease.ErrInvalid)
			_, err := r.Ref(id)
			require.ErrorIs(t, err, lease.ErrInvalid)
		}
		require.ErrorIs(t, r.Tell("x", nil), lease.ErrInvalid)
		_, err = sharding.Ask[int](context.Background(), nil, "x", job{})
		require.ErrorIs(t, err, lease.ErrInvalid)
		_, err = sharding.Ask[int](context.Background(), r, "x", nil)
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.NoError(t, r.Stop(context.Background()))
		require.ErrorIs(t, r.Tell("x", job{}), sharding.ErrClosed)
		require.NoError(t, r.Stop(context.Background()), "twice")
		synctest.Wait()
	})
}

// Start may fail, and leaves nothing behind.
func TestStartThatFailsLeavesNothing(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		n.store.Partition()
		_, err := sharding.Start(n.system, n.group, sharding.Type{Name: "account", Props: n.props(), Shards: 4})
		require.Error(t, err)
		n.store.Heal()
		time.Sleep(2 * ttl)
		n.start(8)
		c.settled(30*time.Second, n)
	})
}
