package sharding_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(calm{m}) }

// calm waits for what protoactor counts of dead letters: a goroutine goes on for
// a second after the first, and the examples, which run last, are on real time.
type calm struct{ *testing.M }

func (m calm) Run() int {
	code := m.M.Run()
	time.Sleep(1100 * time.Millisecond)
	return code
}

// expelled has an operator take the node's membership away, and returns the lease's name.
func expelled(n *node) string {
	n.c.t.Helper()
	time.Sleep(time.Second) // it watches its record
	term, member := n.group.Term()
	require.True(n.c.t, member)
	n.store.SetRule(func(c faultstore.Call) faultstore.Fault { // it does not begin anew at once
		if c.Op == faultstore.Acquire && slices.Contains(c.Names, term.Name()) {
			return faultstore.Fault{Kind: faultstore.Delay, Delay: time.Second}
		}
		return faultstore.Fault{}
	})
	recs, err := n.c.store.Get(context.Background(), term.Name())
	require.NoError(n.c.t, err)
	_, err = n.c.store.Release(context.Background(), []store.Held{recs[0].Held()})
	require.NoError(n.c.t, err)
	for began := time.Now(); member; _, member = n.group.Term() { // it is noticed
		require.Less(n.c.t, time.Since(began), 2*ttl)
		time.Sleep(time.Millisecond)
	}
	return term.Name()
}

// usurps has another node lose its membership, and holds the lease of that.
func (n *node) usurps(from *node) *lease.Handle {
	n.c.t.Helper()
	h, err := n.keeper.Lease(expelled(from))
	require.NoError(n.c.t, err)
	won, err := h.Acquire(context.Background())
	require.NoError(n.c.t, err)
	require.True(n.c.t, won)
	return h
}

// A membership that was lost begins again by itself: a Start in between waits for it. What the node
// is to host goes by the roles that it joined with.
func TestStartBetweenMembershipsHostsByRoles(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a", membership.WithRoles("worker"))
		expelled(n)
		n.start(8, asRole("worker", n)...)
		_, member := n.group.Term()
		require.True(t, member)
		c.settled(30*time.Second, n)
		_, err := ask(n, "x", 1)
		require.NoError(t, err)
	})
}

// One that does not, and one that was given up, is an error.
func TestStartWithoutAMembership(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		start := func() (time.Duration, error) {
			began := time.Now()
			_, err := sharding.Start(n.system, n.group, sharding.Type{Name: "account", Props: n.props(), Shards: 4})
			return time.Since(began), err
		}
		other := c.node("b").usurps(n)
		took, err := start()
		require.ErrorIs(t, err, lease.ErrParentLost)
		require.NotErrorIs(t, err, lease.ErrClosed)
		require.InDelta(t, 10, took.Seconds(), 0.1)
		require.NoError(t, other.Release(context.Background()))
		time.Sleep(ttl)
		require.NoError(t, n.group.Leave(context.Background()))
		took, err = start()
		require.ErrorIs(t, err, lease.ErrClosed)
		require.Less(t, took, time.Second)
	})
}

// One that is given up while Start waits for it is the end of that.
func TestStartWhileTheGroupIsLeft(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		c.node("b").usurps(n)
		after(time.Second, func() { _ = n.group.Leave(context.Background()) })
		began := time.Now()
		_, err := sharding.Start(n.system, n.group, sharding.Type{Name: "account", Props: n.props(), Shards: 4})
		require.ErrorIs(t, err, lease.ErrClosed)
		require.ErrorIs(t, err, lease.ErrParentLost)
		require.Less(t, time.Since(began), 3*time.Second)
		_, err = sharding.Start(n.system, n.group, sharding.Type{Name: "account", Props: n.props(), Shards: 4})
		require.ErrorIs(t, err, lease.ErrClosed, "and at once")
	})
}

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
		subtest(t, how, func(t *testing.T, c *cluster) {
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
	}
}

// An actor that Props make beside the gate, with a mailbox of its own, is no entity. It may ask
// whether it is one, until it is stopped.
func TestAnActorBesideTheGateIsNoEntity(t *testing.T) {
	bubble(t, func(c *cluster) {
		var asked, entities atomic.Int32
		n := c.node("a")
		props := actor.PropsFromFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(*actor.Started); ok {
				if _, ok := sharding.Of(ctx); ok {
					entities.Add(1)
				}
				asked.Add(1)
			}
		}, actor.WithSpawnFunc(func(system *actor.ActorSystem, id string, props *actor.Props, parent actor.SpawnerContext) (*actor.PID, error) {
			return actor.DefaultSpawner(system, id, props.Clone(actor.WithMailbox(actor.Unbounded())), parent)
		}))
		n.startType(sharding.Type{Name: "account", Shards: 1, Props: props})
		c.settled(5*time.Second, n)
		require.NoError(t, n.region.Tell("x", job{"s", 1}))
		time.Sleep(time.Second)
		require.Positive(t, asked.Load(), "Of did not return")
		require.Zero(t, entities.Load())
	})
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
		subtest(t, what, func(t *testing.T, c *cluster) {
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
	}
}

// rude subscribes to a node's dead letters and failures, and panics at each.
func (n *node) rude() (heard *atomic.Int32) {
	heard = new(atomic.Int32)
	n.system.EventStream.Subscribe(func(e any) {
		switch e.(type) {
		case *actor.DeadLetterEvent, *actor.SupervisorEvent:
			heard.Add(1)
			panic("a subscriber's bug")
		}
	})
	return heard
}

// What nobody gets is a dead letter, and a subscriber that panics at it does not do so on
// the goroutine of who sent, which may be remote's.
func TestDeadLettersAreNotToldOnTheSendersGoroutine(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		actors.FamiliesOf(n.system).Enable(true)
		n.start(4)
		c.settled(5*time.Second, n)
		ref, err := n.region.Ref("x")
		require.NoError(t, err)
		door, way := processAt("a:1"), actors.FamilyID("g/account", "1/x")
		short, ok := actors.FamiliesOf(n.system).Resolve(way)
		require.True(t, ok)
		heard := n.rude()
		want := int32(0)
		send := func(what string, f func()) {
			require.NotPanics(t, f, what)
			want++
			synctest.Wait()
			require.Equal(t, want, heard.Load(), what)
		}
		send("nonsense to the door", func() { n.system.Root.Send(door, "nonsense") })
		send("a system's message to a Ref", func() { n.system.Root.Send(ref, &actor.MessageEnvelope{Message: &actor.Started{}}) })
		send("a system's message by the short way", func() {
			short.SendUserMessage(actor.NewPID("a:1", way), &actor.MessageEnvelope{Message: &actor.Started{}})
		})
		p, ok := n.system.ProcessRegistry.Get(door)
		require.True(t, ok)
		send("a watch of the door", func() { p.SendSystemMessage(door, &actor.Watch{Watcher: actor.NewPID("b:1", "y")}) })
		require.NoError(t, n.region.Stop(context.Background()))
		synctest.Wait() // the coordinator's last messages are dead letters, too
		heard.Store(0)
		want = 0
		send("to the door of a Region that has ended", func() { n.system.Root.Send(door, job{}) })
		send("to a Ref of it", func() { n.system.Root.Send(ref, job{}) })
		send("by the short way", func() { short.SendUserMessage(actor.NewPID("a:1", way), wrapperspb.String("1 s")) })
	})
}

// A peer that knows the names of a Region's parts, the parents of entities among them, can't end
// them: entities fail, end and begin as before, and shards move.
func TestPartsOfARegionCannotBeEnded(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		crashing := actor.PropsFromFunc(func(ctx actor.Context) {
			if j, ok := jobOf(ctx.Message()); ok {
				if j.Number == 0 {
					panic("a bad job")
				}
				ctx.Respond(done{Number: j.Number})
			}
		})
		c.startAllType(ns, sharding.Type{Name: "account", Props: crashing, Shards: 2},
			sharding.WithBackoff(10*time.Millisecond, time.Second))
		before := tokens(ns[0])
		for i, owner := range owners(ns[0]) {
			host, peer := ns[0], ns[1]
			if owner == "b" {
				host, peer = peer, host
			}
			id := idOf(i, 2)
			_, err := ask(host, id, 1)
			require.NoError(t, err)
			host.rude()
			for _, name := range []string{process, fmt.Sprintf("%s/%d-%d", process, i, before[i])} {
				pid := actor.NewPID(host.system.Address(), name)
				peer.system.Root.Stop(pid)
				peer.system.Root.Poison(pid)
			}
			time.Sleep(time.Second)
			require.NoError(t, host.region.Tell(id, job{Number: 0}))
			time.Sleep(time.Second)
			_, err = ask(host, id, 2)
			require.NoError(t, err)
			require.EqualValues(t, 1, host.region.Info().Crashes)
		}
		require.Equal(t, before, tokens(ns[0]), "no shard was lost")
		require.NoError(t, ns[0].region.Drain(context.Background()))
		c.settled(20*time.Second, ns[1])
	})
}

// The function that makes stop messages may take its time, and call the Region.
func TestAStopMessageThatIsNotMadeHoldsNothingUp(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		stay, asked := make(chan struct{}), new(atomic.Int32)
		c.atEnd(func() { close(stay) })
		for _, n := range ns {
			n.start(4, sharding.WithStop(func() any {
				asked.Add(1)
				_ = n.region.Info()
				<-stay
				return nil
			}, 2*time.Second))
		}
		c.settled(5*time.Second, ns...)
		ns[0].reaches(4, 1)
		require.NoError(t, ns[0].region.Drain(contextFor(4*time.Second)), "by the deadline of its entities")
		require.EqualValues(t, 2, asked.Load())
		ns[0].reaches(4, 2)
	})
}

// A log may call the Region, whatever the line is about.
func TestALogMayCallTheRegion(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		var differs atomic.Int32
		var region atomic.Pointer[sharding.Region]
		core, _ := observer.New(zap.DebugLevel)
		n.start(4, sharding.WithLogger(zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
			if r := region.Load(); r != nil {
				_ = r.Info()
			}
			if strings.Contains(e.Message, "differs on the number of shards") {
				differs.Add(1)
			}
			return nil
		}))))
		region.Store(n.region)
		c.settled(5*time.Second, n)
		other, err := lease.NewKeeper(c.store, lease.Config{ID: "z", Address: "z:1", TTL: ttl})
		require.NoError(t, err)
		defer func() { _ = other.Close(context.Background()) }()
		for _, name := range []string{"shard/g/account/9", "region/g/account/z/1"} {
			h, err := other.Lease(name, lease.WithMetadata(map[string]string{"shards": "16"}))
			require.NoError(t, err)
			won, err := h.Acquire(context.Background())
			require.NoError(t, err)
			require.True(t, won)
			defer func() { _ = h.Release(context.Background()) }()
		}
		time.Sleep(2 * time.Second)
		require.NotZero(t, differs.Load())
		_, err = ask(n, "x", 1)
		require.NoError(t, err)
	})
}

// The coordinator follows the leader over a store that can't transfer, too.
func TestTheCoordinatorFollowsTheLeaderWithoutTransfers(t *testing.T) {
	overLists(t, func(c *cluster) {
		ns, lead := c.led(12)
		f := c.traffic(100*time.Millisecond, ns...)
		for i := 1; i < 5; i++ {
			lead(i % 2)
			want := ns[i%2].id
			for j := 0; ns[0].region.Info().Coordinator.ID != want || ns[1].region.Info().Coordinator.ID != want; j++ {
				require.Less(t, j, 300, "%s does not coordinate", want)
				time.Sleep(100 * time.Millisecond)
			}
			c.settled(0, ns...)
		}
		f.end()
		c.whole(ns...)
	})
}
