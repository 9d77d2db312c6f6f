package sharding_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/placement"
)

// These are the edges: what entities, strategies and callers do at odd moments.

// A shard is not handed over while the actor of one of its entities is being made.
func TestAnEntityThatIsBeingMadeEndsBeforeItsShardMoves(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		const takes = 3 * time.Second
		for _, n := range ns {
			slow := actor.PropsFromProducer(func() actor.Actor {
				time.Sleep(takes)
				return &account{n: n}
			})
			n.startType(sharding.Type{Name: "account", Shards: 4, Props: slow}, sharding.WithMaxActive(100))
		}
		c.settled(5*time.Second, ns...)
		var moving []string
		for i, owner := range owners(ns[0]) {
			if id := idOf(i, 4); owner == "a" {
				moving = append(moving, id)
				require.NoError(t, ns[0].region.Tell(id, job{"x", 1}))
				require.NoError(t, ns[0].region.Tell(id, job{"x", 2}))
			}
		}
		told := time.Now()
		time.Sleep(100 * time.Millisecond)
		var moved, early atomic.Int32
		ns[0].system.EventStream.Subscribe(func(e any) {
			if e, ok := e.(sharding.Event); ok && e.Kind == sharding.HandedOff {
				moved.Add(1)
				if time.Since(told) < takes {
					early.Add(1)
				}
			}
		})
		require.NoError(t, ns[0].region.Drain(context.Background()))
		synctest.Wait()
		require.EqualValues(t, 2, moved.Load())
		require.Zero(t, early.Load())
		time.Sleep(10 * time.Second)
		for _, id := range moving {
			c.log.complete("x", id, 2)
		}
		c.log.check()
		c.whole(ns...)
	})
}

// An entity whose Props panic is tried again at growing intervals, and comes to be
// once they do not.
func TestAnEntityThatCanNotBeMadeIsTriedLessAndLess(t *testing.T) {
	for name, props := range map[string]func(fails func()) *actor.Props{
		"the producer": func(fails func()) *actor.Props {
			return actor.PropsFromProducer(func() actor.Actor { fails(); return &guest{lives: new(atomic.Int32)} })
		},
		"OnInit": func(fails func()) *actor.Props {
			return guests(new(atomic.Int32)).Clone(actor.WithOnInit(func(actor.Context) { fails() }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(c *cluster) {
				var tries, bad atomic.Int32
				n := c.node("a")
				r := n.startType(sharding.Type{Name: "account", Shards: 4, Props: props(func() {
					tries.Add(1)
					if bad.Load() != 0 {
						panic("not now")
					}
				})}, sharding.WithBackoff(100*time.Millisecond, 10*time.Second))
				c.settled(5*time.Second, n)
				require.NoError(t, r.Tell("x", howMany{}))
				time.Sleep(time.Minute) // it has lived for longer than the longest pause
				bad.Store(1)
				require.NoError(t, r.Tell("x", collapse{}))
				require.NoError(t, r.Tell("x", howMany{}))
				time.Sleep(time.Minute)
				require.Less(t, tries.Load(), int32(25))
				bad.Store(0)
				got, err := sharding.Ask[int](contextFor(t, 11*time.Second), r, "x", howMany{})
				require.NoError(t, err)
				require.Equal(t, 2, got)
			})
		})
	}
}

// newcomer does something in Started.
type newcomer struct {
	guest
	first func(ctx actor.Context, self *sharding.Entity)
}

func (g *newcomer) Receive(ctx actor.Context) {
	g.guest.Receive(ctx)
	if _, ok := ctx.Message().(*actor.Started); ok {
		g.first(ctx, g.self)
	}
}

// An entity that ends itself before it has taken any of its mail is started again
// at growing intervals, as one that panics is.
func TestAnEntityThatStopsInStartedDoesNotSpin(t *testing.T) {
	for name, end := range map[string]func(ctx actor.Context, self *sharding.Entity){
		"Stop":      func(ctx actor.Context, _ *sharding.Entity) { ctx.Stop(ctx.Self()) },
		"Passivate": func(_ actor.Context, self *sharding.Entity) { self.Passivate() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(c *cluster) {
				var lives atomic.Int32
				var stays atomic.Bool
				n := c.node("a")
				props := actor.PropsFromProducer(func() actor.Actor {
					return &newcomer{guest{lives: &lives}, func(ctx actor.Context, self *sharding.Entity) {
						if !stays.Load() && lives.Load() < 1000 {
							end(ctx, self)
						}
					}}
				})
				r := n.startType(sharding.Type{Name: "account", Shards: 4, Props: props},
					sharding.WithBackoff(100*time.Millisecond, 10*time.Second))
				c.settled(5*time.Second, n)
				require.NoError(t, r.Tell("x", howMany{}))
				time.Sleep(time.Minute)
				require.Less(t, lives.Load(), int32(25))
				require.Greater(t, lives.Load(), int32(3))
				stays.Store(true)
				got, err := sharding.Ask[int](contextFor(t, 11*time.Second), r, "x", howMany{})
				require.NoError(t, err)
				require.Equal(t, 2, got)
				c.whole(n)
			})
		})
	}
}

// What an entity asks for in Started counts, though it is not known to be active.
func TestForgetInStarted(t *testing.T) {
	bubble(t, func(c *cluster) {
		store := sharding.NewMemoryEntities()
		var lives atomic.Int32
		n := c.node("a")
		props := actor.PropsFromProducer(func() actor.Actor {
			return &newcomer{guest{lives: &lives}, func(_ actor.Context, self *sharding.Entity) {
				if lives.Load() == 2 {
					self.Forget()
				}
				time.Sleep(time.Millisecond)
			}}
		})
		r := n.startType(sharding.Type{Name: "account", Shards: 1, Props: props}, sharding.WithRemember(store, 0))
		_, err := sharding.Ask[int](contextFor(t, 5*time.Second), r, "x", howMany{})
		require.NoError(t, err)
		require.NoError(t, r.Stop(context.Background()))
		for range 2 { // the first recalls it, and it says that it is not needed
			r = n.startType(sharding.Type{Name: "account", Shards: 1, Props: props}, sharding.WithRemember(store, 0))
			time.Sleep(5 * time.Second)
			require.Zero(t, r.Info().Entities)
			require.NoError(t, r.Stop(context.Background()))
		}
		require.EqualValues(t, 2, lives.Load())
	})
}

// What an entity forgets while its shard is on the move is forgotten.
func TestForgetWhileTheShardMoves(t *testing.T) {
	bubble(t, func(c *cluster) {
		store := sharding.NewMemoryEntities()
		var lives atomic.Int32
		ns := c.nodes("a", "b")
		type farewell struct{}
		props := actor.PropsFromProducer(func() actor.Actor {
			g := &guest{lives: &lives}
			return actor.ReceiveFunc(func(ctx actor.Context) {
				g.Receive(ctx)
				if _, ok := ctx.Message().(farewell); ok {
					g.self.Forget()
					ctx.Stop(ctx.Self())
				}
			})
		})
		c.startAllType(ns, sharding.Type{Name: "account", Shards: 4, Props: props}, sharding.WithRemember(store, 0),
			sharding.WithStop(func() any { return farewell{} }, time.Second))
		for i := range 4 {
			_, err := sharding.Ask[int](contextFor(t, time.Second), ns[0].region, idOf(i, 4), howMany{})
			require.NoError(t, err)
		}
		require.NoError(t, ns[0].region.Drain(context.Background()))
		time.Sleep(2 * time.Second)
		require.Equal(t, 2, ns[1].region.Info().Entities, "those that did not move")
		require.EqualValues(t, 4, lives.Load())
	})
}

// An entity that forgot itself is remembered again before it gets what it had not
// taken, also after a pause.
func TestForgottenWithMailIsRememberedAgain(t *testing.T) {
	bubble(t, func(c *cluster) {
		store := sharding.NewMemoryEntities()
		var lives atomic.Int32
		props := actor.PropsFromProducer(func() actor.Actor {
			return &newcomer{guest{lives: &lives}, func(_ actor.Context, self *sharding.Entity) {
				if lives.Load() == 1 {
					self.Forget()
					time.Sleep(time.Millisecond)
				}
			}}
		})
		n := c.node("a")
		run := func() *sharding.Region {
			return n.startType(sharding.Type{Name: "account", Shards: 1, Props: props}, sharding.WithRemember(store, 0))
		}
		r := run()
		_, err := sharding.Ask[int](contextFor(t, 5*time.Second), r, "x", howMany{})
		require.NoError(t, err)
		require.EqualValues(t, 2, lives.Load())
		require.NoError(t, r.Stop(context.Background()))
		r = run()
		time.Sleep(5 * time.Second)
		require.Equal(t, 1, r.Info().Entities)
	})
}

// A store that is away holds a shard up by the deadline and no longer; what was to
// be forgotten then is not.
func TestForgetWithoutTheStoreEndsByTheDeadline(t *testing.T) {
	bubble(t, func(c *cluster) {
		store := &failing{EntityStore: sharding.NewMemoryEntities()}
		var lives atomic.Int32
		ns := c.hostingType("a b", sharding.Type{Name: "account", Shards: 2, Props: guests(&lives)}, sharding.WithRemember(store, 0),
			sharding.WithStop(nil, 2*time.Second))
		mine := idOf(slices.Index(owners(ns[0]), "a"), 2)
		_, err := sharding.Ask[int](contextFor(t, time.Second), ns[0].region, mine, howMany{})
		require.NoError(t, err)
		store.set(true)
		require.NoError(t, ns[0].region.Tell(mine, forget{}))
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, ns[0].region.Drain(context.Background()))
		require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
		require.Less(t, time.Since(began), 3*time.Second)
		store.set(false)
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, ns[1].region.Info().Entities)
	})
}

// Undrain ends a Drain that waits.
func TestUndrainEndsADrainThatWaits(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		for _, n := range ns {
			n.start(8, sharding.WithStop(func() any { return goAway{} }, 30*time.Second)) // nobody heeds it
		}
		c.settled(5*time.Second, ns...)
		for i := range 8 {
			_, err := ask(ns[0], idOf(i, 8), 1)
			require.NoError(t, err)
		}
		result := make(chan error, 1)
		go func() { result <- ns[0].region.Drain(context.Background()) }()
		time.Sleep(time.Second)
		ns[0].region.Undrain()
		select {
		case err := <-result:
			require.ErrorIs(t, err, sharding.ErrUndrained)
		case <-time.After(time.Second):
			require.Fail(t, "Drain waits on")
		}
		c.settled(2*time.Minute, ns...)
		c.log.check()
	})
}

// A strategy may write to what it is given, name nodes that do not exist, panic, and
// end its goroutine: what it can't harm goes on.
func TestAStrategyThatMisbehaves(t *testing.T) {
	bubble(t, func(c *cluster) {
		var mood atomic.Int32
		strategy := placement.StrategyFunc(func(v placement.View) []string {
			hosts := slices.SortedFunc(slices.Values(v.Hosts), func(a,
				b placement.Host) int {
				return strings.Compare(a.ID, b.ID)
			})
			to := ""
			if len(hosts) > 0 {
				to = hosts[0].Incarnation
			}
			switch mood.Load() {
			case 0: // all to the first
			case 1:
				panic("no idea")
			case 2:
				return []string{to}
			case 3:
				to = "nobody"
			case 4:
				to = hosts[len(hosts)-1].Incarnation
			}
			for i := range v.Owners { // in place
				v.Owners[i] = to
			}
			return v.Owners
		})
		ns := c.nodes("a", "b")
		for _, n := range ns {
			n.start(8, sharding.WithStrategy(strategy))
		}
		all := func(id string) []string { return slices.Repeat([]string{id}, 8) }
		time.Sleep(3 * time.Second)
		require.Equal(t, all("a"), owners(ns[0]))
		for _, m := range []int32{1, 5, 2, 3} {
			mood.Store(m)
			time.Sleep(3 * time.Second)
			require.Equal(t, all("a"), owners(ns[0]))
			_, err := ask(ns[1], "x", 1)
			require.NoError(t, err)
		}
		mood.Store(4)
		time.Sleep(3 * time.Second)
		require.Equal(t, all("b"), owners(ns[0]))
		c.log.check()
		c.whole(ns...)
	})
}

// An entity that does not heed its passivation is reported and shut off at the
// deadline; what comes meanwhile waits for its successor.
func TestAStubbornEntityThatIsPassivated(t *testing.T) {
	bubble(t, func(c *cluster) {
		type block struct{}
		n := c.node("a")
		var cause atomic.Value
		var lives atomic.Int32
		props := actor.PropsFromProducer(func() actor.Actor {
			g := &guest{lives: &lives}
			return actor.ReceiveFunc(func(ctx actor.Context) {
				if _, ok := ctx.Message().(block); ok {
					<-g.self.Context().Done()
					cause.Store(context.Cause(g.self.Context()))
					time.Sleep(3 * time.Second)
				}
				g.Receive(ctx)
			})
		})
		events := make(chan sharding.Event, 10)
		n.system.EventStream.Subscribe(func(e any) {
			if e, ok := e.(sharding.Event); ok && e.Kind == sharding.NotStopping {
				events <- e
			}
		})
		r := n.startType(sharding.Type{Name: "account", Shards: 1, Props: props}, sharding.WithPassivation(time.Second),
			sharding.WithStop(nil, 2*time.Second))
		c.settled(5*time.Second, n)
		require.NoError(t, r.Tell("x", block{}))
		time.Sleep(2 * time.Second) // it is idle, though at work
		got, err := sharding.Ask[int](contextFor(t, 10*time.Second), r, "x", howMany{})
		require.NoError(t, err)
		require.Equal(t, 1, got)
		require.EqualValues(t, 2, lives.Load())
		require.ErrorIs(t, cause.Load().(error), sharding.ErrOverdue)
		require.Len(t, events, 1)
		e := <-events
		require.Equal(t, "x", e.ID)
		require.Equal(t, 2*time.Second, e.After)
	})
}
