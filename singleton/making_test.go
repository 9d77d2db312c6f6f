package singleton_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/singleton"
)

// The places of Props where code of the user's runs as a child is made, each with f in it
// for the first child.
func propsWith(n *node, at string, f func()) *actor.Props {
	var once atomic.Bool
	do := func(here string) {
		if here == at && once.CompareAndSwap(false, true) {
			f()
		}
	}
	worker := n.worker()
	return worker.Clone(
		actor.WithProducer(func() actor.Actor {
			do("producer")
			return actor.ReceiveFunc(func(ctx actor.Context) { n.c.log.receive(n, ctx) })
		}),
		actor.WithOnInit(func(actor.Context) { do("OnInit") }),
		actor.WithSpawnFunc(func(system *actor.ActorSystem, id string, props *actor.Props, parent actor.SpawnerContext) (*actor.PID, error) {
			do("SpawnFunc")
			pid, err := actor.DefaultSpawner(system, id, props, parent)
			do("SpawnFunc, after")
			return pid, err
		}))
}

var placesOfProps = []string{"producer", "OnInit", "SpawnFunc", "SpawnFunc, after"}

func (n *node) runProps(name string, props *actor.Props, opts ...singleton.Option) *singleton.Manager {
	n.c.t.Helper()
	m, err := singleton.Start(n.system, n.keeper, name, props, opts...)
	require.NoError(n.c.t, err)
	n.c.managers = append(n.c.managers, m)
	n.c.atEnd(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = m.Stop(ctx)
	})
	return m
}

// hung is a node whose manager hosts, and whose child's Props hang.
func hung(t *testing.T, c *cluster, at string) (a *node, m *singleton.Manager, release func()) {
	a = c.node("a")
	hold := make(chan struct{})
	var released atomic.Bool
	release = func() {
		if released.CompareAndSwap(false, true) {
			close(hold)
		}
	}
	c.atEnd(release)
	props := propsWith(a, at, func() { <-hold })
	m = a.runProps("x", props)
	until(t, time.Second, "is being made", func() bool { return m.Status().Phase == singleton.Starting })
	c.atEnd(release)
	return a, m, release
}

// Props that panic are a start that failed: told, and tried again.
func TestPropsThatPanic(t *testing.T) {
	for how, f := range map[string]func(){"panic": func() { panic("a bug") }} {
		for _, at := range placesOfProps {
			t.Run(how+" in "+at, func(t *testing.T) {
				bubble(t, func(t *testing.T, c *cluster) {
					a, b := c.node("a"), c.node("b")
					told := a.events()
					props := propsWith(a, at, f)
					ma := a.runProps("x", props)
					until(t, 2*time.Second, "hosts", active(ma))
					mb := b.run("x")
					time.Sleep(time.Second)
					if at == "SpawnFunc, after" { // there was one, which was stopped
						require.Len(t, told.of(singleton.ChildEnded), 1)
						require.NotNil(t, told.of(singleton.ChildEnded)[0].Panic)
					} else {
						require.Len(t, told.of(singleton.StartFailed), 1)
						require.Error(t, told.of(singleton.StartFailed)[0].Reason)
					}
					goesOn(t, c, a, b, ma, mb)
					c.log.check()
				})
			})
		}
	}
}

// Props that hang hold up nothing but the child, for half a minute at the most: then
// another node hosts, and this one again when they have returned.
func TestPropsThatHang(t *testing.T) {
	for _, at := range placesOfProps {
		t.Run(at, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				began := time.Now()
				a, ma, release := hung(t, c, at)
				told := a.events()
				health := singleton.Health(a.system)
				b := c.node("b")
				mb := b.run("x")
				b.system.Root.Send(mb.PID(), job{"b", 1})
				a.system.Root.Send(ma.PID(), job{"a", 2})
				time.Sleep(6 * time.Second)
				require.NoError(t, health(t.Context()))
				require.Len(t, told.of(singleton.NotStarting), 1)
				require.Equal(t, 5*time.Second, told.of(singleton.NotStarting)[0].After)
				until(t, 30*time.Second, "another hosts", active(mb))
				require.InDelta(t, 30, time.Since(began).Seconds(), 1)
				require.Len(t, told.of(singleton.StartFailed), 1)
				require.ErrorIs(t, told.of(singleton.StartFailed)[0].Reason, singleton.ErrNotMade)
				require.Equal(t, singleton.Standby, ma.Status().Phase)
				a.mustAsk(ma.PID(), 3)
				time.Sleep(time.Second)
				require.ErrorContains(t, health(t.Context()), "its Props have been making the child since 2000-01-01T00:00:0")

				// It can't take over while they hang.
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				require.NoError(t, mb.Stop(ctx), "%+v", mb.Status())
				time.Sleep(2 * ttl)
				require.Equal(t, singleton.Standby, ma.Status().Phase)

				release()
				until(t, time.Second, "hosts again", active(ma))
				require.NoError(t, health(t.Context()))
				a.mustAsk(ma.PID(), 4)
				require.NoError(t, ma.Stop(t.Context()))
				c.log.check()
				for _, l := range c.log.snapshot()[:1] {
					if at == "SpawnFunc, after" && l.node == "a" {
						require.Empty(t, l.jobs, "no mail came to the child that was given up")
						require.False(t, l.to.IsZero())
					} else {
						require.Equal(t, "b", l.node, "the child that was given up never began")
					}
				}
			})
		})
	}
}

// A manager whose Props hang ends in good order, and what they make then is stopped.
func TestStopWhilePropsHang(t *testing.T) {
	for _, at := range placesOfProps {
		t.Run(at, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				a, ma, release := hung(t, c, at)
				b := c.node("b")
				mb := b.run("x")
				time.Sleep(time.Second)
				began := time.Now()
				require.NoError(t, ma.Stop(t.Context()))
				require.LessOrEqual(t, time.Since(began), 15*time.Second, "WithStop's default, and what is to be said to the others")
				until(t, time.Second, "another hosts", active(mb))
				lives := len(c.log.snapshot())
				release()
				b.mustAsk(mb.PID(), 1)
				require.Len(t, c.log.snapshot(), lives, "what was made too late never began")
				require.Equal(t, 1, c.log.running())
				_, runs := a.system.ProcessRegistry.GetLocal(ma.PID().Id + "/1-1")
				require.False(t, runs, "what was made too late was stopped")
				c.log.check()
			})
		})
	}
}

// A loss is obeyed at once, whatever Props do.
func TestALossWhilePropsHang(t *testing.T) {
	for _, at := range placesOfProps {
		t.Run(at, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				a, ma, release := hung(t, c, at)
				told := a.events()
				b := c.node("b")
				mb := b.run("x")
				a.store.Partition()
				until(t, ttl, "is told", func() bool { return len(told.of(singleton.StartFailed)) == 1 })
				require.NotErrorIs(t, told.of(singleton.StartFailed)[0].Reason, singleton.ErrNotMade)
				until(t, 2*ttl, "another hosts", active(mb))
				lives := len(c.log.snapshot())
				release()
				a.system.Root.Send(ma.PID(), job{"a", 1})
				time.Sleep(time.Second)
				require.Len(t, c.log.snapshot(), lives)
				a.store.Heal()
				a.mustAsk(ma.PID(), 2)
				c.log.check()
			})
		})
	}
}

// A child whose Started runs is given up as any other while its Props do not return, but not the
// lease under it.
func TestAStartedThatHangsUnderPropsThatHang(t *testing.T) {
	for how, end := range map[string]func(a *node, m *singleton.Manager){
		"too late": func(*node, *singleton.Manager) {},
		"Stop": func(a *node, m *singleton.Manager) {
			ctx, cancel := context.WithCancel(a.c.t.Context())
			cancel()
			_ = m.Stop(ctx)
		},
		"the actor's end": func(a *node, m *singleton.Manager) { a.system.Root.Stop(m.PID()) },
	} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				a := c.node("a")
				hold := make(chan struct{})
				release := sync.OnceFunc(func() { close(hold) })
				c.log.behave = func(n *node, ctx actor.Context, _ *life) bool {
					if _, ok := ctx.Message().(*actor.Started); ok && n == a {
						<-hold
					}
					return false
				}
				ma := a.runProps("x", a.worker().Clone(
					actor.WithSpawnFunc(func(system *actor.ActorSystem, id string, props *actor.Props, parent actor.SpawnerContext) (*actor.PID, error) {
						defer func() { <-hold }()
						return actor.DefaultSpawner(system, id, props, parent)
					})))
				c.atEnd(release)
				until(t, time.Second, "runs", func() bool { return c.log.running() == 1 })
				b := c.node("b")
				mb := b.run("x")
				end(a, ma)
				for range 10 {
					time.Sleep(5 * time.Second)
					recs, err := c.store.Get(t.Context(), "singleton/x")
					require.NoError(t, err)
					require.Len(t, recs, 1)
					require.Equal(t, "a", recs[0].Owner.ID, "the lease is kept while its child runs")
				}
				require.Equal(t, 1, c.log.running())
				release()
				until(t, 5*time.Second, "it hosts again, or another does", func() bool { return active(ma)() || active(mb)() })
				b.mustAsk(mb.PID(), 1)
				require.Equal(t, 1, c.log.running())
				c.log.check()
			})
		})
	}
}

// What begins when it has been given up sees nothing, and keeps no manager from ending,
// though its Props hang again.
func TestPropsThatHangOnceMoreWhenGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		first, second := make(chan struct{}), make(chan struct{})
		release := sync.OnceFunc(func() { close(first) })
		c.atEnd(func() { release(); close(second) })
		ma := a.runProps("x", a.worker().Clone(
			actor.WithSpawnFunc(func(system *actor.ActorSystem, id string, props *actor.Props, parent actor.SpawnerContext) (*actor.PID, error) {
				<-first
				pid, err := actor.DefaultSpawner(system, id, props, parent)
				<-second
				return pid, err
			})))
		until(t, time.Minute, "is given up", func() bool { return ma.Status().Phase == singleton.Standby })
		release()
		time.Sleep(time.Second)
		a.system.Root.Stop(ma.PID())
		until(t, 5*time.Second, "has ended", func() bool {
			select {
			case <-ma.Done():
				return true
			default:
				return false
			}
		})
		require.Zero(t, len(c.log.snapshot()), "what begins too late sees nothing")
	})
}

// moody is a source of leadership that misbehaves when it is followed first, and when it
// is left.
type moody struct {
	membership.Leadership
	at    string
	do    func()
	calls atomic.Int32
}

func (l *moody) Follow(f func(membership.LeaderChanged)) func() {
	if l.at == "Follow" && l.calls.Add(1) == 1 {
		l.do()
	}
	stop := l.Leadership.Follow(f)
	return func() {
		stop()
		if l.at == "stop" {
			l.do()
		}
	}
}

// A source of leadership that fails is followed again; one that hangs holds up nothing.
func TestSourcesOfLeadershipThatMisbehave(t *testing.T) {
	for how, f := range map[string]func(){"panic": func() { panic("a bug") }, "hang": nil} {
		for _, at := range []string{"Follow", "stop"} {
			t.Run(how+" in "+at, func(t *testing.T) {
				bubble(t, func(t *testing.T, c *cluster) {
					if how == "hang" {
						hold := make(chan struct{})
						c.atEnd(func() { close(hold) })
						f = func() { <-hold }
					}
					a, b := c.node("a"), c.node("b")
					la, lb := membership.NewStatic(a.keeper.Owner()), membership.NewStatic(b.keeper.Owner())
					la.Set(a.keeper.Owner())
					lb.Set(a.keeper.Owner())
					l := &moody{Leadership: la, at: at, do: f}
					ma := a.run("x", singleton.WithLeadership(l))
					mb := b.run("x", singleton.WithLeadership(lb))
					if how == "hang" && at == "Follow" {
						time.Sleep(31 * time.Second)
						require.ErrorContains(t, singleton.Health(a.system)(t.Context()), "its source of leadership has not returned from Follow since")
						lb.Set(b.keeper.Owner())
						until(t, time.Second, "another hosts", active(mb))
						a.mustAsk(ma.PID(), 1)
					} else {
						until(t, time.Second, "hosts", active(ma))
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					require.NoError(t, ma.Stop(ctx), "%+v", ma.Status())
					require.NoError(t, mb.Stop(ctx), "%+v", mb.Status())
				})
			})
		}
	}
}
