package gate_test

import (
	"testing"
	"testing/synctest"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/ctxext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/gate"
)

// family spawns a guarded child and a guarded grandchild, and records what the
// dead letters get.
func (s *stage) family() (child, grandchild *actor.PID, dead *log[*actor.DeadLetterEvent]) {
	dead = new(log[*actor.DeadLetterEvent])
	s.system.EventStream.Subscribe(func(event any) {
		if d, ok := event.(*actor.DeadLetterEvent); ok {
			dead.add(d)
		}
	})
	s.spawn()
	spawn := func(pid **actor.PID) call {
		return func(ctx actor.Context) {
			g, ok := gate.Of(ctx)
			require.True(s.t, ok)
			assert.Same(s.t, s.gate, g)
			*pid = ctx.Spawn(g.Guard(actor.PropsFromFunc(s.receive)))
		}
	}
	s.send(spawn(&child))
	synctest.Wait()
	s.system.Root.Send(child, spawn(&grandchild))
	synctest.Wait()
	return child, grandchild, dead
}

func TestGuardedChildrenPassWhileAliveAndDraining(t *testing.T) {
	perform(t, func(s *stage) {
		child, grandchild, dead := s.family()
		s.system.Root.Send(child, num(1))
		synctest.Wait()
		s.gate.Drain()
		s.system.Root.Send(grandchild, num(2))
		synctest.Wait()
		s.system.Root.Send(child, num(3))
		synctest.Wait()
		s.expectScript("*actor.Started", "*actor.Started", "*actor.Started", "1", "2", "3")
		assert.Empty(t, dead.list())
	})
}

func TestGuardedChildrenAreLostTogether(t *testing.T) {
	perform(t, func(s *stage) {
		child, grandchild, dead := s.family()
		s.term.expire()
		sender := s.system.NewLocalPID("nobody")
		s.system.Root.Send(grandchild, num(1))
		synctest.Wait()
		s.system.Root.RequestWithCustomSender(child, num(2), sender)
		synctest.Wait()
		s.send(num(0))
		s.expectDiverted(0, 1)
		require.GreaterOrEqual(t, len(dead.list()), 2)
		assert.Equal(t, num(1), dead.list()[0].Message)
		assert.True(t, grandchild.Equal(dead.list()[0].PID))
		var two *actor.DeadLetterEvent
		for _, d := range dead.list() {
			if d.Message == num(2) {
				two = d
			}
		}
		require.NotNil(t, two)
		assert.Same(t, sender, two.Sender)
		s.stop()
		s.expectDone()
		for _, pid := range []*actor.PID{child, grandchild} {
			_, ok := s.system.ProcessRegistry.GetLocal(pid.Id)
			assert.False(t, ok)
		}
	})
}

func TestTheBacklogOfAGuardedChildIsDeadLettered(t *testing.T) {
	perform(t, func(s *stage) {
		child, _, dead := s.family()
		s.system.Root.Send(child, crash{})
		s.system.Root.Send(child, block{})
		s.system.Root.Send(child, block{})
		for i := range backlog {
			s.system.Root.Send(child, num(i))
		}
		synctest.Wait()
		s.stop()
		s.release()
		synctest.Wait()
		got := []any{}
		for _, d := range dead.list() {
			if n, ok := d.Message.(num); ok {
				got = append(got, n)
			}
		}
		assert.Equal(t, numbers(0, backlog), got)
		s.expectDone()
		assert.Empty(t, s.diverted.list())
	})
}

func TestTheEndOfAChildIsNotTheEndOfTheGate(t *testing.T) {
	perform(t, func(s *stage) {
		child, _, _ := s.family()
		s.system.Root.Stop(child)
		synctest.Wait()
		s.send(num(1))
		synctest.Wait()
		assert.Contains(t, s.script.list(), "1")
		assert.Equal(t, gate.Open, s.gate.Mode())
		assert.NoError(t, s.gate.Context().Err())
		s.stop()
		s.expectDone()
	})
}

func TestAChildThatIsSpawnedAfterTheLossNeverStarts(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		s.send(call(func(ctx actor.Context) {
			s.gate.Lose(errOther)
			ctx.Spawn(s.gate.Guard(actor.PropsFromFunc(s.receive)))
		}))
		s.expectScript("*actor.Started", "lost: other")
		s.stop()
		s.expectDone()
	})
}

func TestTheUsersPropsStayAsTheyAre(t *testing.T) {
	perform(t, func(s *stage) {
		var inits, guarded log[bool]
		props := actor.PropsFromFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(*actor.Started); ok {
				_, ok := gate.Of(ctx)
				guarded.add(ok)
			}
			s.receive(ctx)
		}, actor.WithOnInit(func(ctx actor.Context) {
			_, ok := gate.Of(ctx)
			inits.add(ok)
		}))
		s.pid = s.system.Root.Spawn(s.gate.Props(props))
		synctest.Wait()
		plain := s.system.Root.Spawn(props)
		synctest.Wait()
		s.gate.Lose(errOther)
		s.system.Root.Send(plain, num(1))
		synctest.Wait()
		assert.Equal(t, []bool{true, false}, guarded.list())
		assert.Equal(t, []bool{false, false}, inits.list(), "the user's OnInit runs, before the gate is known")
		assert.Contains(t, s.script.list(), "1", "an actor of the original Props has no gate")
		s.system.Root.Stop(plain)
	})
}

func TestOfWithoutAContext(t *testing.T) {
	g, ok := gate.Of(nil)
	assert.Nil(t, g)
	assert.False(t, ok)
	g, ok = gate.Of(fullContext{})
	assert.Nil(t, g)
	assert.False(t, ok)
}

// fullContext has no room for our extension, and panics as protoactor's does.
type fullContext struct{}

func (fullContext) Get(id ctxext.ContextExtensionID) ctxext.ContextExtension {
	return []ctxext.ContextExtension{}[id]
}

func (fullContext) Set(ctxext.ContextExtension) {}

func TestAGateGuardsOneActor(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		first := s.pid
		s.spawn()
		second := s.pid
		s.send(num(0))
		s.expectDiverted(0, 1)
		s.pid = first
		s.send(num(1))
		s.post(num(2))
		s.expectScript("*actor.Started", "diverted gate_test.num", "1", "2")
		require.NoError(t, s.system.Root.StopFuture(second).Wait())
		assert.Equal(t, gate.Open, s.gate.Mode())
		s.stop()
		s.expectDone()
	})
}

// A notice of somebody else's end is a message like others. A child's is needed.
func TestTerminatedWhenLost(t *testing.T) {
	perform(t, func(s *stage) {
		stranger := s.system.Root.Spawn(actor.PropsFromFunc(func(actor.Context) {}))
		var child *actor.PID
		s.spawn()
		s.do(func(ctx actor.Context) {
			child = ctx.Spawn(actor.PropsFromFunc(func(actor.Context) {}))
			ctx.Watch(stranger)
		})
		synctest.Wait()
		s.term.expire()
		s.system.Root.Stop(stranger)
		s.expectScript("*actor.Started", "lost: lease expired")
		s.system.Root.Stop(child)
		s.expectScript("*actor.Started", "lost: lease expired", "*actor.Terminated")
		s.stop()
		s.expectDone()
	})
}

// A spawn middleware may name children as it likes.
func TestAChildOfAnotherNameIsAChild(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn(actor.WithSpawnMiddleware(func(next actor.SpawnFunc) actor.SpawnFunc {
			return func(system *actor.ActorSystem, _ string, p *actor.Props, ctx actor.SpawnerContext) (*actor.PID, error) {
				return next(system, "elsewhere", p, ctx)
			}
		}))
		s.do(func(ctx actor.Context) { ctx.Spawn(actor.PropsFromFunc(func(actor.Context) {})) })
		s.gate.Lose(errOther)
		s.stop()
		s.expectDone()
	})
}

func TestAFailingChildIsSupervisedWhenLost(t *testing.T) {
	perform(t, func(s *stage) {
		var child *actor.PID
		s.spawn(actor.WithSupervisor(stopFailing))
		s.do(func(ctx actor.Context) {
			child = ctx.Spawn(actor.PropsFromFunc(s.receive))
		})
		synctest.Wait()
		s.gate.Lose(errOther)
		s.system.Root.Send(child, crash{})
		synctest.Wait()
		_, ok := s.system.ProcessRegistry.GetLocal(child.Id)
		assert.False(t, ok)
	})
}

// strict is an actor that supervises its children by itself.
type strict struct{ s *stage }

func (a strict) Receive(ctx actor.Context) { a.s.receive(ctx) }

func (a strict) HandleFailure(_ *actor.ActorSystem, sv actor.Supervisor, child *actor.PID,
	_ *actor.RestartStatistics, _, _ any) {
	a.s.script.add("supervises")
	sv.StopChildren(child)
}

func TestASupervisingActorFindsTheContextDoneUnderADeadTerm(t *testing.T) {
	perform(t, func(s *stage) {
		var child *actor.PID
		s.pid = s.system.Root.Spawn(s.gate.Props(actor.PropsFromProducer(func() actor.Actor { return strict{s} })))
		s.do(func(ctx actor.Context) {
			child = ctx.Spawn(actor.PropsFromFunc(func(c actor.Context) {
				if _, ok := c.Message().(crash); ok {
					panic("crash")
				}
			}))
		})
		s.term.expire()
		s.system.Root.Send(child, crash{})
		s.expectScript("*actor.Started", "lost: lease expired", "supervises", "*actor.Terminated")
	})
}
