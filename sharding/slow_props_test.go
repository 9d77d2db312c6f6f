package sharding_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/sharding"
)

// A producer that hangs holds up its own entity, and no other of the shard.
func TestAProducerThatHangs(t *testing.T) {
	bubble(t, func(c *cluster) {
		hold := make(chan struct{})
		var made atomic.Int32
		n := c.node("a")
		n.startType(sharding.Type{Name: "account", Shards: 1, Props: actor.PropsFromProducer(func() actor.Actor {
			if made.Add(1) == 1 {
				<-hold
			}
			return &account{n: n}
		})})
		c.settled(5*time.Second, n)
		require.NoError(t, n.region.Tell("slow", job{"s", 1}))
		time.Sleep(time.Second)
		for i := range 10 {
			_, err := ask(n, string(rune('a'+i)), 1)
			require.NoError(t, err)
		}
		require.Empty(t, c.log.of("s", "slow"))
		close(hold)
		time.Sleep(time.Second)
		c.log.complete("s", "slow", 1)
		c.log.check()
	})
}

// Props whose SpawnFunc makes no actor, and says nothing of it, have failed: the entity is
// tried again, and the shard goes on.
func TestAnActorThatIsNotMade(t *testing.T) {
	bubble(t, func(c *cluster) {
		var tries atomic.Int32
		n := c.node("a")
		props := actor.PropsFromProducer(func() actor.Actor { return &account{n: n} },
			actor.WithSpawnFunc(func(system *actor.ActorSystem, id string, props *actor.Props, parent actor.SpawnerContext) (*actor.PID, error) {
				if tries.Add(1) == 1 {
					return nil, nil
				}
				return actor.DefaultSpawner(system, id, props, parent)
			}))
		n.startType(sharding.Type{Name: "account", Shards: 1, Props: props})
		c.settled(5*time.Second, n)
		_, _ = ask(n, "first", 1) // may be lost with what was not made
		for i := range 3 {
			_, err := ask(n, string(rune('a'+i)), 1)
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		_, err := ask(n, "first", 2)
		require.NoError(t, err)
		require.NoError(t, n.region.Stop(c.t.Context()))
	})
}

// A producer that panics has failed: the entity is tried again. So
// has a SpawnFunc that does so when the actor has begun: that is stopped before.
func TestPropsThatPanic(t *testing.T) {
	for how, f := range map[string]func(){"panic": func() { panic("a bug") }} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the actor had begun: %v", how, after), func(t *testing.T) {
				bubble(t, func(c *cluster) {
					var tries atomic.Int32
					n := c.node("a")
					props := actor.PropsFromProducer(func() actor.Actor { return &account{n: n} },
						actor.WithSpawnFunc(func(system *actor.ActorSystem, id string, props *actor.Props, parent actor.SpawnerContext) (*actor.PID, error) {
							first := tries.Add(1) == 1
							if first && !after {
								f()
							}
							pid, err := actor.DefaultSpawner(system, id, props, parent)
							if first && after {
								f()
							}
							return pid, err
						}))
					n.startType(sharding.Type{Name: "account", Shards: 1, Props: props})
					c.settled(5*time.Second, n)
					_, _ = ask(n, "first", 1) // may come to the one that is stopped
					time.Sleep(time.Minute)
					_, err := ask(n, "first", 2)
					require.NoError(t, err)
					require.EqualValues(t, 2, tries.Load())
					require.NoError(t, n.region.Stop(c.t.Context()))
				})
			})
		}
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
				require.NoError(t, ns[0].region.Drain(contextFor(t, 10*time.Second)))
				_, err := ask(ns[1], "slow", 2)
				require.NoError(t, err)
				require.NoError(t, ns[0].region.Stop(contextFor(t, 10*time.Second)))
				require.Equal(t, 0, ns[0].region.Info().Entities)
				c.log.check()
			})
		})
	}
}
