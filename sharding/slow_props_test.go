package sharding_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/sharding"
)

// spawning returns Props of the journal's entity that are spawned by f.
func spawning(n *node, f func(begin func() (*actor.PID, error)) (*actor.PID, error)) *actor.Props {
	return n.props().Clone(actor.WithSpawnFunc(func(system *actor.ActorSystem, id string, props *actor.Props,
		parent actor.SpawnerContext) (*actor.PID, error) {
		return f(func() (*actor.PID, error) { return actor.DefaultSpawner(system, id, props, parent) })
	}))
}

// started returns Props of the journal's entity, which does something in Started.
func started(n *node, f func(ctx actor.Context)) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor {
		return &doer{account{n: n}, func(_ *node, ctx actor.Context) {
			if _, ok := ctx.Message().(*actor.Started); ok {
				f(ctx)
			}
		}}
	})
}

// An entity that can't be made, in whatever way, or ends before it has taken any of its mail, is
// tried again at growing intervals, and its mail waits.
func TestAnEntityThatFailsIsTriedLessAndLess(t *testing.T) {
	type props = func(n *node, fails func() bool) *actor.Props
	bug := func(fails func() bool) {
		if fails() {
			panic("a bug")
		}
	}
	for how, props := range map[string]props{
		"the producer panics": func(n *node, fails func() bool) *actor.Props {
			return actor.PropsFromProducer(func() actor.Actor { bug(fails); return &account{n: n} })
		},
		"OnInit panics": func(n *node, fails func() bool) *actor.Props {
			return n.props().Clone(actor.WithOnInit(func(actor.Context) { bug(fails) }))
		},
		"the SpawnFunc panics": func(n *node, fails func() bool) *actor.Props {
			return spawning(n, func(begin func() (*actor.PID, error)) (*actor.PID, error) { bug(fails); return begin() })
		},
		"the SpawnFunc panics when the actor has begun": func(n *node, fails func() bool) *actor.Props {
			return spawning(n, func(begin func() (*actor.PID, error)) (*actor.PID, error) { defer bug(fails); return begin() })
		},
		"no actor is made": func(n *node, fails func() bool) *actor.Props {
			return spawning(n, func(begin func() (*actor.PID, error)) (*actor.PID, error) {
				if fails() {
					return nil, nil
				}
				return begin()
			})
		},
		"Stop in Started": func(n *node, fails func() bool) *actor.Props {
			return started(n, func(ctx actor.Context) {
				if fails() {
					ctx.Stop(ctx.Self())
				}
			})
		},
		"Passivate in Started": func(n *node, fails func() bool) *actor.Props {
			return started(n, func(ctx actor.Context) {
				if e, _ := sharding.Of(ctx); fails() {
					e.Passivate()
				}
			})
		},
	} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(c *cluster) {
				var tries atomic.Int32
				var good atomic.Bool
				n := c.node("a")
				n.startType(sharding.Type{Name: "account", Shards: 1, Props: props(n, func() bool {
					return tries.Add(1) < 1000 && !good.Load()
				})}, sharding.WithBackoff(100*time.Millisecond, 10*time.Second))
				c.settled(5*time.Second, n)
				require.NoError(t, n.region.Tell("x", job{"s", 1}))
				time.Sleep(time.Minute)
				require.Less(t, tries.Load(), int32(25))
				require.Greater(t, tries.Load(), int32(3))
				good.Store(true)
				time.Sleep(11 * time.Second)
				_, err := ask(n, "x", 1)
				require.NoError(t, err)
				c.log.complete("s", "x", 1)
				require.NoError(t, n.region.Stop(c.t.Context()))
			})
		})
	}
}

// A SpawnFunc that fails late, when its actor has ended by itself and the next life of the
// entity runs, has that go on.
func TestPropsThatFailWhenTheNextLifeRuns(t *testing.T) {
	bubble(t, func(c *cluster) {
		var tries, ended atomic.Int32
		hold := make(chan struct{})
		n := c.node("a")
		props := actor.PropsFromFunc(func(ctx actor.Context) {
			switch m := ctx.Message().(type) {
			case *actor.Started:
				if tries.Load() == 1 {
					ctx.Stop(ctx.Self())
				}
			case *actor.Stopped:
				ended.Add(1)
			default:
				if j, ok := jobOf(m); ok {
					ctx.Respond(done{Number: j.Number})
				}
			}
		}, actor.WithSpawnFunc(func(system *actor.ActorSystem, id string, props *actor.Props, parent actor.SpawnerContext) (*actor.PID, error) {
			first := tries.Add(1) == 1
			pid, err := actor.DefaultSpawner(system, id, props, parent)
			if first {
				<-hold
				panic("a bug")
			}
			return pid, err
		}))
		n.startType(sharding.Type{Name: "account", Shards: 1, Props: props})
		c.settled(5*time.Second, n)
		_, err := ask(n, "x", 1)
		require.NoError(t, err)
		require.EqualValues(t, 2, tries.Load())
		require.EqualValues(t, 1, ended.Load())
		close(hold)
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, ended.Load(), "the second life was stopped")
		_, err = ask(n, "x", 2)
		require.NoError(t, err)
		require.EqualValues(t, 2, tries.Load())
	})
}

// Props that do not return hold up no shard: once its entities are overdue, or it was lost,
// it goes on without what they were to make, which nothing passes to when they return.
func TestAShardIsNotHeldUpByPropsThatHang(t *testing.T) {
	for what, after := range map[string]bool{"before the actor has begun": false, "after": true} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(c *cluster) {
				hold := make(chan struct{})
				c.atEnd(func() { close(hold) })
				ns := c.nodes("a", "b")
				var ran atomic.Int32
				props := func(n *node) *actor.Props {
					return actor.PropsFromProducer(func() actor.Actor { return &account{n: n} },
						actor.WithSpawnFunc(func(system *actor.ActorSystem, id string, props *actor.Props, parent actor.SpawnerContext) (*actor.PID, error) {
							if n == ns[0] && !after {
								<-hold
							}
							pid, err := actor.DefaultSpawner(system, id, props, parent)
							if n == ns[0] && after {
								<-hold
							}
							ran.Add(1)
							return pid, err
						}))
				}
				for _, n := range ns {
					n.startType(sharding.Type{Name: "account", Shards: 1, Props: props(n)}, sharding.WithStop(nil, 2*time.Second))
					c.settled(5*time.Second, ns[0])
				}
				require.Equal(t, "a", owners(ns[0])[0])
				require.NoError(t, ns[1].region.Tell("slow", job{"s", 1}))
				time.Sleep(time.Second)
				require.NoError(t, ns[0].region.Drain(contextFor(10*time.Second)))
				_, err := ask(ns[1], "slow", 2)
				require.NoError(t, err)
				require.NoError(t, ns[0].region.Stop(contextFor(10*time.Second)))
				require.Equal(t, 0, ns[0].region.Info().Entities)
				c.log.check()
			})
		})
	}
}
