package singleton_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lease"
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

// hung is a node whose manager hosts, and whose child's Props hang.
func hung(t *testing.T, c *cluster, at string) (a *node, m *singleton.Manager, release func()) {
	a = c.node("a")
	hold := make(chan struct{})
	release = sync.OnceFunc(func() { close(hold) })
	c.atEnd(release)
	m = a.runProps("x", propsWith(a, at, func() { <-hold }))
	until(t, time.Second, "is being made", func() bool { return m.Status().Phase == singleton.Starting })
	c.atEnd(release)
	return a, m, release
}

// Props that panic are a start that failed: told, and tried again.
func TestPropsThatPanic(t *testing.T) {
	for _, at := range placesOfProps {
		subtest(t, at, func(t *testing.T, c *cluster) {
			a, b := c.node("a"), c.node("b")
			told := a.events()
			props := propsWith(a, at, func() { panic("a bug") })
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
	}
}

// Props that hang hold up nothing but the child, for half a minute at the most: then
// another node hosts, and this one again when they have returned.
func TestPropsThatHang(t *testing.T) {
	for _, at := range placesOfProps {
		subtest(t, at, func(t *testing.T, c *cluster) {
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
			require.NoError(t, mb.Stop(contextFor(time.Minute)), "%+v", mb.Status())
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
	}
}

// A manager whose Props hang ends in good order, and what they make then is stopped.
func TestStopWhilePropsHang(t *testing.T) {
	for _, at := range placesOfProps {
		subtest(t, at, func(t *testing.T, c *cluster) {
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
	}
}

// A loss is obeyed at once, whatever Props do.
func TestALossWhilePropsHang(t *testing.T) {
	for _, at := range placesOfProps {
		subtest(t, at, func(t *testing.T, c *cluster) {
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
		subtest(t, how, func(t *testing.T, c *cluster) {
			a := c.node("a")
			hold := make(chan struct{})
			release := sync.OnceFunc(func() { close(hold) })
			when(c, a, func(*actor.Started) { <-hold })
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
				require.Equal(t, "a", c.record("singleton/x").Owner.ID, "the lease is kept while its child runs")
			}
			require.Equal(t, 1, c.log.running())
			release()
			until(t, 5*time.Second, "it hosts again, or another does", func() bool { return active(ma)() || active(mb)() })
			b.mustAsk(mb.PID(), 1)
			require.Equal(t, 1, c.log.running())
			c.log.check()
		})
	}
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
			subtest(t, how+" in "+at, func(t *testing.T, c *cluster) {
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
				ctx := contextFor(time.Minute)
				require.NoError(t, ma.Stop(ctx), "%+v", ma.Status())
				require.NoError(t, mb.Stop(ctx), "%+v", mb.Status())
			})
		}
	}
}

// broken returns the Props of a child that fails before its first message while bad is set.
func (n *node) broken(how string, bad *atomic.Bool) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor {
		if how == "Props panic" && bad.Load() {
			panic("no configuration")
		}
		began := false
		return actor.ReceiveFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(*actor.Started); ok {
				if how == "Started panics" && bad.Load() {
					panic("no database")
				}
				began = true
			}
			if began {
				n.c.log.receive(n, ctx)
			}
		})
	})
}

func TestAChildThatFailsAtOnceIsHandedOn(t *testing.T) {
	for _, how := range []string{"Props panic", "Started panics"} {
		for _, by := range []string{"", "preferred", "leader", "bare"} {
			subtest(t, how+" "+by, func(t *testing.T, c *cluster) {
				a, b := c.node("a"), c.node("b")
				var opts [2][]singleton.Option
				for i, n := range []*node{a, b} {
					h, err := n.keeper.Lease("my/own")
					require.NoError(t, err)
					defer func() { _ = h.Close(t.Context()) }()
					switch by {
					case "preferred":
						opts[i] = append(opts[i], singleton.WithPreferred("a"))
					case "bare":
						opts[i] = append(opts[i], singleton.WithLease(bare{h}))
					case "leader":
						leader := membership.NewStatic(n.keeper.Owner())
						leader.Set(a.keeper.Owner())
						opts[i] = append(opts[i], singleton.WithLeadership(leader))
					}
				}
				var bad atomic.Bool
				bad.Store(true)
				ma := a.runProps("x", a.broken(how, &bad), opts[0]...)
				told, health := a.events(), singleton.Health(a.system)
				time.Sleep(2 * time.Second)
				require.ErrorContains(t, health(t.Context()), "in a row before its first message, the last time with")
				mb := b.run("x", opts[1]...)
				until(t, 10*time.Second, "the other node hosts", active(mb))
				require.NoError(t, health(t.Context()))

				gave := func() int { return len(told.of(singleton.HandedOver)) + len(told.of(singleton.Released)) }
				gaveBefore := gave()
				const minutes = 10
				answered := 0
				for i := range minutes * 60 {
					if _, err := b.ask(mb.PID(), i, time.Second); err == nil {
						answered++
					}
					time.Sleep(time.Second - time.Duration(time.Now().Nanosecond()))
				}
				require.Greater(t, answered, minutes*60*95/100)
				moves := gave() - gaveBefore
				if by == "" || by == "bare" {
					require.Zero(t, moves, "one that works stays")
				} else {
					require.Greater(t, moves, minutes, "it is tried again")
					require.Less(t, moves, 6+2*minutes+3, "after pauses")
				}
				bad.Store(false)
				if by == "preferred" || by == "leader" {
					until(t, 2*time.Minute, "where it should be", func() bool { return active(ma)() && a.well() })
					b.mustAsk(mb.PID(), 1)
				}
				c.log.check()
			})
		}
	}
}

// well reports whether Health says nothing.
func (n *node) well() bool { return singleton.Health(n.system)(n.c.t.Context()) == nil }

func TestNoNodeCanMakeTheChild(t *testing.T) {
	for _, ids := range [][]string{{"a"}, {"a", "b"}, {"a", "b", "c", "d"}} {
		bubble(t, func(t *testing.T, c *cluster) {
			ns := c.nodes(ids...)
			var bad atomic.Bool
			bad.Store(true)
			var ms []*singleton.Manager
			var told []*events
			for _, n := range ns {
				told = append(told, n.events())
				ms = append(ms, n.runProps("x", n.broken("Started panics", &bad)))
			}
			const minutes = 10
			ill := 0
			for range minutes * 60 {
				time.Sleep(time.Second)
				synctest.Wait()
				for _, n := range ns {
					if !n.well() {
						ill++
					}
				}
			}
			require.Greater(t, ill, minutes*60*9/10, "who hosts says that nothing serves")
			for _, x := range told {
				require.LessOrEqual(t, len(x.of(singleton.HandedOver))+len(x.of(singleton.Released)), 6+2*minutes+3, "one move in a pause")
			}
			bad.Store(false)
			until(t, time.Minute, "served", func() bool { _, err := ns[0].ask(ms[0].PID(), 1, time.Second); return err == nil })
			time.Sleep(time.Second)
			for _, n := range ns {
				require.NoError(t, singleton.Health(n.system)(t.Context()))
			}
			c.log.check()
		})
	}
}

// A child that does its work in Started and stops itself fails in nothing.
func TestAChildThatIsDoneStays(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		told := a.events()
		ma := a.runProps("x", actor.PropsFromFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(*actor.Started); ok {
				ctx.Stop(ctx.Self())
			}
		}))
		time.Sleep(time.Second)
		b.run("x")
		time.Sleep(2 * time.Minute)
		require.Greater(t, len(told.of(singleton.ChildEnded)), 5)
		require.Empty(t, told.of(singleton.HandedOver))
		require.True(t, a.well(), "%v", ma.Status())
	})
}

// What WithStop's function does keeps no child from being stopped, and no loss from being
// heard of.
func TestAStopMessageThatIsNotMade(t *testing.T) {
	const within = 2 * time.Second
	for name, lost := range map[string]bool{"hangs": false, "hangs, and the lease is lost": true, "panics": false} {
		subtest(t, name, func(t *testing.T, c *cluster) {
			release := make(chan struct{})
			defer close(release)
			a, b := c.node("a"), c.node("b")
			ma := a.run("x", singleton.WithStop(func() any {
				switch name {
				case "panics":
					panic("a bug")
				}
				<-release
				return bye{}
			}, within))
			until(t, time.Second, "hosts", active(ma))
			mb := b.run("x")
			time.Sleep(time.Second)
			stops(ma)
			if lost {
				time.Sleep(time.Second)
				a.store.Partition()
				defer a.store.Heal()
				until(t, ttl+time.Second, "the loss is heard of", func() bool { return c.log.snapshot()[0].ctx.Err() != nil })
			}
			until(t, within+10*time.Millisecond, "has stopped", func() bool { return !c.log.snapshot()[0].to.IsZero() })
			until(t, 2*ttl, "hosts", active(mb))
		})
	}
}

// protoactor's mailboxes count a nil that is sent, and look for it for ever.
func TestNilIsADeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		dead := 0
		letters(a.system, func(l *actor.DeadLetterEvent) {
			if l.Message == nil {
				dead++
			}
		})
		m := a.hosts("x")
		a.system.Root.Send(m.PID(), nil)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1, dead)
	})
}

// bye asks a child to end itself.
type bye struct{}

func TestStopMessageWithADeadline(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		var asked, ended time.Time
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			switch ctx.Message().(type) {
			case bye:
				asked = time.Now()
				self := ctx.Self()
				time.AfterFunc(3*time.Second, func() { a.system.Root.Stop(self) })
			case *actor.Stopped:
				ended = time.Now()
			}
			return false
		}
		ma := a.hosts("x", singleton.WithStop(func() any { return bye{} }, 5*time.Second))
		mb := b.run("x")
		time.Sleep(time.Second)
		require.NoError(t, ma.Stop(t.Context()))
		require.Equal(t, 3*time.Second, ended.Sub(asked), "it took the time it needed")
		until(t, time.Second, "hosts", active(mb))
	})
}

func TestAChildThatMissesItsDeadlineIsShutOff(t *testing.T) {
	for _, policy := range []hosting.Overdue{hosting.KeepLease, hosting.ReleaseAfterTTL} {
		bubble(t, func(t *testing.T, c *cluster) {
			a, b := c.node("a"), c.node("b")
			release := make(chan struct{})
			when(c, nil, func(j job) {
				if j.Number == 1 {
					<-release
				}
			})
			ma := a.hosts("x", singleton.WithStop(func() any { return bye{} }, 2*time.Second), singleton.WithOverdue(policy))
			ea := a.events()
			mb := b.run("x")
			time.Sleep(time.Second)
			a.system.Root.Send(ma.PID(), job{Sender: "a", Number: 1})
			a.system.Root.Send(ma.PID(), job{Sender: "a", Number: 2})
			time.Sleep(time.Second)
			began := time.Now()
			go func() { _ = ma.Stop(t.Context()) }()
			time.Sleep(2*time.Second + 10*time.Millisecond)
			first := c.log.snapshot()[0]
			require.ErrorIs(t, context.Cause(first.ctx), singleton.ErrOverdue, "its context is done at the deadline")
			time.Sleep(ttl - time.Second)
			require.False(t, active(mb)())
			time.Sleep(2 * time.Second)
			if policy == hosting.ReleaseAfterTTL {
				until(t, time.Second, "hosts", active(mb))
				require.InDelta(t, (2*time.Second + ttl).Seconds(), ea.of(singleton.Yielded)[0].After.Seconds()+time.Since(began).Seconds(), 3)
			} else {
				time.Sleep(10 * ttl)
				require.False(t, active(mb)(), "the lease is held while it runs")
				require.Empty(t, ea.of(singleton.Yielded))
			}
			require.NotEmpty(t, ea.of(singleton.NotStopping))
			close(release)
			until(t, 5*time.Second, "hosts", active(mb))
			<-ma.Done()
			require.Equal(t, []job{{"a", 1}, {"a", 2}}, c.log.jobs(""), "what it had not taken reached the next host")
		})
	}
}

// goesOn checks that the singleton of a and b works, moves from a to b, and ends.
func goesOn(t *testing.T, c *cluster, a, b *node, ma, mb *singleton.Manager) {
	t.Helper()
	a.mustAsk(ma.PID(), 1)
	b.mustAsk(mb.PID(), 2)
	ctx := contextFor(time.Minute)
	require.NoError(t, ma.Stop(ctx), "%+v", ma.Status())
	b.mustAsk(mb.PID(), 3)
	require.NoError(t, mb.Stop(ctx), "%+v", mb.Status())
	require.Zero(t, c.log.running())
}

// rude is a lease of a user's that panics at one method, the first time.
type rude struct {
	lease.Lease
	at    string
	calls atomic.Int32
}

func (r *rude) boom(at string) {
	if at == r.at && r.calls.Add(1) == 1 {
		panic("a bug of " + at)
	}
}

func (r *rude) Acquire(ctx context.Context) (bool, error) {
	r.boom("Acquire")
	return r.Lease.Acquire(ctx)
}
func (r *rude) Release(ctx context.Context) error     { r.boom("Release"); return r.Lease.Release(ctx) }
func (r *rude) OnLost(f func(lease.Loss)) func() bool { r.boom("OnLost"); return r.Lease.OnLost(f) }
func (r *rude) OnFree(f func()) func() bool {
	r.boom("OnFree")
	w, _ := lease.As[lease.Waiter](r.Lease)
	return w.OnFree(f)
}
func (r *rude) Wait(ctx context.Context) error {
	w, _ := lease.As[lease.Waiter](r.Lease)
	return w.Wait(ctx)
}
func (r *rude) Term() (lease.Term, bool) {
	r.boom("Term")
	t, _ := lease.As[lease.Termed](r.Lease)
	return t.Term()
}
func TestLeasesThatPanic(t *testing.T) {
	for _, at := range []string{"Acquire", "Release", "OnLost", "OnFree", "Term"} {
		subtest(t, at, func(t *testing.T, c *cluster) {
			a, b := c.node("a"), c.node("b")
			rudely := func(n *node) (*rude, *singleton.Manager) {
				h, err := n.keeper.Lease("singleton/x")
				require.NoError(t, err)
				r := &rude{Lease: h, at: at}
				return r, n.run("x", singleton.WithLease(r), singleton.WithBackoff(100*time.Millisecond, time.Second))
			}
			ra, ma := rudely(a)
			until(t, 10*time.Second, "hosts", active(ma))
			rb, mb := rudely(b)
			time.Sleep(time.Second) // it waits for the name
			b.mustAsk(mb.PID(), 1)
			ctx := contextFor(time.Minute)
			require.NoError(t, ma.Stop(ctx), "%+v", ma.Status())
			until(t, ttl+10*time.Second, "takes over", active(mb))
			b.mustAsk(mb.PID(), 2)
			require.NoError(t, mb.Stop(ctx), "%+v", mb.Status())
			require.NotZero(t, ra.calls.Load()+rb.calls.Load())
		})
	}
}

func TestScenario06AChildThatIgnoresStop(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		hang := make(chan struct{})
		when(c, a, func(j job) {
			if j.Number < 0 {
				<-hang // deaf to its context
			}
		})
		told := a.events()
		ma := a.hosts("scheduler")
		a.system.Root.Send(ma.PID(), job{Number: -1})
		synctest.Wait()
		a.store.Partition()
		time.Sleep(ttl)
		require.Equal(t, singleton.Stopping, ma.Status().Phase)
		a.store.Heal()
		time.Sleep(5 * time.Minute)
		require.Equal(t, singleton.Stopping, ma.Status().Phase, "never a second one on this node")
		require.Len(t, c.log.snapshot(), 1)
		require.InDelta(t, 6, len(told.of(singleton.NotStopping)), 2, "reported, at growing intervals")
		// Another node may have it: the TTL covered the lost lease.
		mb := b.run("scheduler")
		until(t, time.Minute, "another hosts", active(mb))
		err := ma.Stop(contextFor(time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "stopping")

		close(hang)
		require.NoError(t, ma.Stop(t.Context()))
		require.True(t, active(mb)(), "the late release harms nobody")
	})
}

func TestScenario07ACrashedChildIsRespawnedWithBackoff(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if j, ok := ctx.Message().(job); ok {
				switch {
				case j.Number == -1:
					panic("boom")
				case j.Number == -2:
					ctx.Stop(ctx.Self())
				}
			}
			return false
		}
		m := a.hosts("scheduler", singleton.WithBackoff(time.Second, 8*time.Second))
		token := m.Status().Token
		for i, kind := range []int{-1, -2, -1, -2, -1} {
			a.system.Root.Send(m.PID(), job{Number: kind})
			// What is queued behind the crash waits for the next child, in order.
			for k := range 100 {
				a.system.Root.Send(m.PID(), job{Number: k + 1})
			}
			ended := time.Now()
			synctest.Wait()
			require.Equal(t, singleton.Backoff, m.Status().Phase)
			until(t, 9*time.Second, "respawned", active(m))
			least := min(time.Second<<i, 8*time.Second) / 2
			require.GreaterOrEqual(t, time.Since(ended), least, "pause %d", i)
			require.Equal(t, token, m.Status().Token, "under the same lease")
			lives := c.log.snapshot()
			require.Len(t, lives, i+2)
			got := lives[i+1].jobs
			require.Len(t, got, 100)
			for k, j := range got {
				require.Equal(t, k+1, j.Number, "in order")
			}
		}
		c.log.check()
	})
}
