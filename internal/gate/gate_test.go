package gate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/ctxext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

func TestATermWithoutAContextIsRefused(t *testing.T) {
	_, err := gate.New(gate.Options{Term: &deadlineTerm{clock: store.SystemClock()}, Divert: func(any) {}})
	assert.ErrorIs(t, err, lease.ErrInvalid)
	assert.ErrorContains(t, err, "its context")
}

func TestGateTellsItsTerm(t *testing.T) {
	perform(t, func(s *stage) {
		assert.Equal(t, termName, s.gate.Name())
		assert.Equal(t, termToken, s.gate.Token())
		assert.Equal(t, gate.Open, s.gate.Mode())
		assert.True(t, s.gate.CheckAlive())
		s.term.expire()
		assert.False(t, s.gate.CheckAlive(), "it reads the clock")
		s.gate.Close()
	})
}

func TestOpenPassesEverything(t *testing.T) {
	perform(t, func(s *stage) {
		assert.False(t, s.gate.Used())
		s.spawn()
		assert.False(t, s.gate.Used())
		s.send(num(1))
		s.post(num(2))
		s.post(&actor.MessageEnvelope{Message: num(3)})
		s.expectScript("*actor.Started", "1", "2", "3")
		assert.True(t, s.gate.Used())
	})
}

func TestEnvelopesKeepSenderAndHeaders(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		sender := s.system.NewLocalPID("sender")
		envelope := func() *actor.MessageEnvelope {
			e := &actor.MessageEnvelope{Sender: sender}
			e.SetHeader("k", "v")
			return e
		}
		passed := 0
		check := call(func(ctx actor.Context) {
			passed++
			assert.Equal(t, sender, ctx.Sender())
			assert.Equal(t, "v", ctx.MessageHeader().Get("k"))
		})
		plain, front, refused := envelope(), envelope(), envelope()
		plain.Message, front.Message, refused.Message = check, check, num(1)
		s.send(plain)
		s.post(front)
		synctest.Wait()
		assert.Equal(t, 2, passed)

		s.gate.Drain()
		s.post(refused)
		synctest.Wait()
		require.Len(t, s.diverted.list(), 1)
		assert.Same(t, refused, s.diverted.list()[0], "diverted as it was posted")
	})
}

func TestOnLostNeedsNoMessage(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		s.term.end(errTakenOver)
		s.expectScript("*actor.Started", "lost: "+errTakenOver.Error())
		assert.ErrorIs(t, context.Cause(s.gate.Context()), lease.ErrTakenOver)
		s.send(num(1))
		s.expectDiverted(1, 2)
	})
}

// The context ends at the deadline by a timer, while a handler is running: it
// may stop by it, and the next message finds it done.
func TestAnOverrunIsCountedAndItsContextDone(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		time.AfterFunc(10*time.Second, func() { s.term.end(lease.ErrExpired) })
		s.send(call(func(ctx actor.Context) {
			g, ok := gate.Of(ctx)
			require.True(t, ok)
			start := time.Now()
			<-g.Context().Done()
			assert.Equal(t, 10*time.Second, time.Since(start))
			assert.Zero(t, g.Overruns(), "it may still keep the bound")
			time.Sleep(time.Second)
		}))
		s.send(num(1))
		time.Sleep(20 * time.Second)
		s.expectDiverted(1, 2)
		assert.EqualValues(t, 1, s.gate.Overruns())
	})
}

func TestAPanickingOverrunIsCounted(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn(actor.WithGuardian(ignoreFailing))
		s.send(call(func(ctx actor.Context) {
			s.term.end(lease.ErrExpired)
			time.Sleep(time.Second)
			panic("late")
		}))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 1, s.gate.Overruns())
	})
}

func TestLoseTellsItsCauseOnce(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		s.gate.Lose(errOther)
		assert.True(t, s.term.CheckAlive())
		assert.False(t, s.gate.CheckAlive(), "lost, though the term lives")
		s.gate.Lose(errTakenOver)
		s.term.end(errTakenOver)
		s.gate.Drain()
		s.send(num(1))
		s.expectScript("*actor.Started", "lost: other", "diverted gate_test.num")
		assert.Equal(t, gate.Lost, s.gate.Mode())
		assert.False(t, s.gate.CheckAlive())
	})
}

func TestLoseWithoutACauseTakesTheTerms(t *testing.T) {
	perform(t, func(s *stage) {
		s.gate.Lose(nil)
		assert.ErrorIs(t, context.Cause(s.gate.Context()), lease.ErrExpired)
	})
	perform(t, func(s *stage) {
		s.term.cancel(errTakenOver)
		s.gate.Lose(nil)
		assert.ErrorIs(t, context.Cause(s.gate.Context()), lease.ErrTakenOver)
	})
}

func TestNothingIsRefusedBeforeOnLostReturned(t *testing.T) {
	var told chan struct{}
	perform(t, func(s *stage) {
		told = make(chan struct{})
		s.spawn()
		go s.gate.Lose(errOther)
		synctest.Wait() // OnLost is waiting
		s.send(num(1))
		synctest.Wait()
		assert.Empty(t, s.diverted.list())
		close(told)
		s.expectDiverted(1, 2)
	}, func(o *gate.Options) { o.OnLost = func(error) { <-told } })
}

func TestDrainingTurnsAwayTheFrontDoorOnly(t *testing.T) {
	perform(t, func(s *stage) {
		other := s.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			if m, ok := ctx.Message().(num); ok {
				<-s.hold
				ctx.Respond(m)
			}
		}))
		defer s.system.Root.Stop(other)
		future := actor.NewFuture(s.system, time.Minute)
		s.spawn()
		s.send(call(func(ctx actor.Context) {
			s.post(num(1))
			s.gate.Drain()
			s.post(&actor.MessageEnvelope{Message: num(2), Sender: other})
			ctx.Request(other, num(100))
			ctx.ReenterAfter(future, func(res any, err error) {
				s.script.add(fmt.Sprint("continued with ", res))
			})
			ctx.Send(ctx.Self(), num(101))
		}))
		s.expectScript("*actor.Started", "diverted gate_test.num", "diverted gate_test.num", "101")
		s.release()
		synctest.Wait()
		s.system.Root.Send(future.PID(), num(102))
		synctest.Wait()
		s.send("please stop")
		s.post(num(3))
		s.system.Root.Poison(s.pid)
		s.expectScript("*actor.Started", "diverted gate_test.num", "diverted gate_test.num", "101",
			"100", "continued with 102", "string", "diverted gate_test.num", "*actor.Stopping", "*actor.Stopped",
			"done")
		s.expectDiverted(1, 4)
		s.expectDone()
	})
}

func TestContinuationsAreWithheldWhenLost(t *testing.T) {
	for _, lost := range []bool{false, true} {
		perform(t, func(s *stage) {
			s.spawn()
			f := actor.NewFuture(s.system, time.Minute)
			ran := false
			s.send(call(func(ctx actor.Context) {
				ctx.ReenterAfter(f, func(any, error) { ran = true })
			}))
			synctest.Wait()
			if lost {
				s.term.expire()
			}
			s.system.Root.Send(f.PID(), num(1))
			synctest.Wait()
			assert.Equal(t, !lost, ran)
			if lost {
				s.expectScript("*actor.Started", "lost: lease expired")
			}
		})
	}
}

func TestTheUsersMiddlewareDoesNotRunWhenClosed(t *testing.T) {
	perform(t, func(s *stage) {
		var seen log[any]
		s.spawn(actor.WithReceiverMiddleware(func(next actor.ReceiverFunc) actor.ReceiverFunc {
			return func(ctx actor.ReceiverContext, e *actor.MessageEnvelope) {
				seen.add(e.Message)
				next(ctx, e)
			}
		}))
		s.post(num(1))
		synctest.Wait()
		s.gate.Drain()
		s.post(num(2))
		s.send(num(3))
		synctest.Wait()
		s.gate.Lose(errOther)
		s.send(num(4))
		synctest.Wait()
		assert.Equal(t, []any{&actor.Started{}, num(1), num(3)}, seen.list())
	})
}

func TestForgedLifecycleIsMailAndRefusedWhenLost(t *testing.T) {
	forged := []any{&actor.Started{}, &actor.Stopping{}, &actor.Stopped{}, &actor.Restarting{},
		&actor.Stop{}, &actor.Restart{}, &actor.Terminated{}, &actor.Failure{}, &actor.PoisonPill{},
		&actor.Watch{}, &actor.Unwatch{}, &actor.ReceiveTimeout{}}
	perform(t, func(s *stage) {
		s.spawn()
		s.gate.Lose(errOther)
		for _, m := range forged {
			s.send(m)
			s.system.Root.RequestWithCustomSender(s.pid, m, s.pid)
		}
		synctest.Wait()
		diverted := messagesOf(s.diverted.list())
		require.Len(t, diverted, 2*len(forged))
		for i, m := range forged {
			assert.Same(t, m, diverted[2*i])
			assert.Same(t, m, diverted[2*i+1])
		}
		assert.Equal(t, []string{"*actor.Started", "lost: other"}, s.script.list()[:2])
	})
}

func TestANilMessageIsDropped(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		s.send(nil)
		s.send(num(1))
		s.expectScript("*actor.Started", "1")
	})
}

// pool is a dispatcher that does as it is told.
type pool struct {
	actor.Dispatcher
	behave func(run func())
}

func (p *pool) Schedule(run func()) { p.behave(run) }

// A dispatcher of users' may do what it likes: who posts, stops or loses holds a lock that it
// comes to need, and every message is handled or diverted, once and in order.
func TestADispatcherThatIsCalledAside(t *testing.T) {
	for name, fail := range map[string]func(run func(), lock chan struct{}){
		"panics":                      func(func(), chan struct{}) { panic("the pool is closed") },
		"panics when it has begun":    func(run func(), _ chan struct{}) { go run(); panic("a bug") },
		"panics when it has run":      func(run func(), _ chan struct{}) { run(); panic("a bug") },
		"runs it in place":            func(run func(), _ chan struct{}) { run() },
		"runs it twice":               func(run func(), _ chan struct{}) { go run(); go run() },
		"waits":                       func(run func(), _ chan struct{}) { time.Sleep(time.Minute); go run() },
		"wants what the sender holds": func(run func(), lock chan struct{}) { lock <- struct{}{}; <-lock; go run() },
	} {
		subtest(t, name, func(t *testing.T, s *stage) {
			lock := make(chan struct{}, 1)
			locked := func(f func()) {
				lock <- struct{}{}
				defer func() { <-lock }()
				began := time.Now()
				f()
				require.Zero(t, time.Since(began), "it is not waited for")
			}
			d := &pool{actor.NewDefaultDispatcher(300), func(run func()) { fail(run, lock) }}
			locked(func() { s.spawn(actor.WithDispatcher(d)) })
			for i := range 6 {
				locked(func() { s.post(num(i)) })
				if i%2 == 1 {
					time.Sleep(2 * time.Minute)
				}
			}
			s.expectScript("*actor.Started", "0", "1", "2", "3", "4", "5")
			locked(func() { s.gate.Lose(errOther) })
			locked(func() { s.post(num(6)) })
			locked(func() { s.gate.Stop() })
			time.Sleep(2 * time.Minute)
			s.expectDiverted(6, 7)
			s.expectDone()
		})
	}
}

// family spawns a guarded child and a guarded grandchild, and records what the
// dead letters get.
func (s *stage) family() (child, grandchild *actor.PID, dead *log[*actor.DeadLetterEvent]) {
	dead = new(log[*actor.DeadLetterEvent])
	s.letters(dead.add)
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

// batch is taken apart by protoactor's mailboxes.
type batch []any

func (b batch) GetMessages() []any { return b }

func TestABatchIsTakenApartOnce(t *testing.T) {
	want := []any{num(0), num(1), batch{num(0), num(1)}}
	perform(t, func(s *stage) {
		s.spawn()
		s.send(batch{num(0), num(1)})
		s.post(batch{num(2)}) // the front door's mailbox has posted 2 by itself
		s.expectScript("*actor.Started", "0", "1", "gate_test.batch", "gate_test.batch")

		s.gate.Lose(errOther)
		s.send(batch{num(0), num(1)})
		synctest.Wait()
		assert.Equal(t, want, s.diverted.list())
	})
	// What was diverted and is posted on arrives as it would have.
	perform(t, func(s *stage) {
		s.spawn()
		for _, m := range want {
			s.post(m)
		}
		s.expectScript("*actor.Started", "0", "1", "gate_test.batch")
	})
}

// What is posted is front-door mail. If it is nothing, the actor sees nothing.
func TestWhatIsPostedIsFrontDoorMail(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		for _, nothing := range []any{nil, (*actor.MessageEnvelope)(nil)} {
			assert.True(t, s.gate.Post(nothing))
		}
		s.post(num(0))
		s.expectScript("*actor.Started", "0")
		s.gate.Drain()
		s.post(num(0))
		s.post(num(1))
		s.expectDiverted(0, 2)
	})
}

func TestPostTakesNoMemoryOfItsOwn(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		s.block()
		message := any(&tick{})
		assert.Zero(t, testing.AllocsPerRun(2000, func() { s.gate.Post(message) }))
	})
}

// What protoactor leaves behind for ever.
func TestAStopThatPanicsComesToItsEnd(t *testing.T) {
	for _, supervisor := range []struct {
		name     string
		strategy actor.SupervisorStrategy
	}{{"restart", restartFailing}, {"stop", stopFailing}, {"ignore", ignoreFailing}} {
		for _, where := range []actor.AutoReceiveMessage{&actor.Stopping{}, &actor.Stopped{}} {
			for _, child := range []bool{false, true} {
				for _, lost := range []bool{false, true} {
					name := fmt.Sprintf("%s/%T/child=%v/lost=%v", supervisor.name, where, child, lost)
					t.Run(name, func(t *testing.T) { aStopThatFails(t, supervisor.strategy, where, child, lost) })
				}
			}
		}
	}
}

func bug() { panic("on the way out") }

func aStopThatFails(t *testing.T, supervisor actor.SupervisorStrategy, where any, child, lost bool) {
	perform(t, func(s *stage) {
		receive := func(ctx actor.Context) {
			s.receive(ctx)
			if fmt.Sprintf("%T", ctx.Message()) == fmt.Sprintf("%T", where) {
				bug()
			}
			if _, ok := ctx.Message().(*actor.Started); ok && child {
				ctx.Spawn(actor.PropsFromFunc(func(actor.Context) {}))
			}
		}
		parent := s.guardianOf(receive, actor.WithSupervisor(supervisor))
		watcher := s.watch()
		s.block()
		if lost {
			s.queue()
			s.gate.Lose(errOther)
		} else {
			for i := range backlog { // other mail may pass while a child ends
				s.post(num(i))
			}
		}
		s.system.Root.Stop(s.pid)
		s.release()
		s.expectDiverted(0, backlog)
		seen := 0
		for _, line := range s.script.list() {
			if line == "*actor.Stopped" || line == "*actor.Stopping" {
				seen++
			}
			assert.NotEqual(t, "*actor.Restarting", line)
		}
		assert.Equal(t, 2, seen, "Stopping once, Stopped once")
		s.expectEnd(parent, watcher)
	})
}

// The guardian's own part in the end fails, be it that of a good actor: it is called once, and
// the end comes as it would have.
func TestAnEndThatFailsComesToItsEnd(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for _, stopped := range []bool{false, true} { // Stopped fails, too
			t.Run(fmt.Sprintf("lost=%v/stopped=%v", lost, stopped), func(t *testing.T) { anEndThatFails(t, lost, stopped) })
		}
	}
}

func anEndThatFails(t *testing.T, lost, stopped bool) {
	calls := 0
	perform(t, func(s *stage) {
		receive := func(ctx actor.Context) {
			s.receive(ctx)
			if _, ok := ctx.Message().(*actor.Stopped); ok && stopped {
				bug()
			}
		}
		parent := s.guardianOf(receive)
		watcher := s.watch()
		s.block()
		for i := range backlog {
			s.post(num(i))
		}
		if lost {
			s.gate.Lose(errOther)
		}
		s.system.Root.Stop(s.pid)
		s.release()
		s.expectDiverted(0, backlog)
		s.expectEnd(parent, watcher)
		assert.Equal(t, 1, calls)
	}, func(o *gate.Options) {
		o.OnEnd = func(_ actor.Actor, was bool) {
			calls++
			assert.Equal(t, lost, was)
			if calls == 1 { // else it would go on for ever, were it called again
				bug()
			}
		}
	})
}

// failingMailbox fails where its actor is told of another's end, for many times.
type failingMailbox struct {
	actor.Mailbox
	told *atomic.Int32
}

func (m failingMailbox) PostSystemMessage(message any) {
	if _, ok := message.(*actor.Terminated); ok && m.told.Add(1) < 100 {
		bug()
	}
	m.Mailbox.PostSystemMessage(message)
}

// Who watches may have a mailbox of their own that fails: the others are told, and the end is one,
// whoever tells of it.
func TestAnEndThatAWatchersMailboxFailsAt(t *testing.T) {
	for _, stopped := range []bool{false, true} { // Stopped fails, so that the gate tells
		subtest(t, fmt.Sprintf("stopped=%v", stopped), func(t *testing.T, s *stage) {
			s.pid = s.system.Root.Spawn(s.gate.Props(actor.PropsFromFunc(func(ctx actor.Context) {
				s.receive(ctx)
				if _, ok := ctx.Message().(*actor.Stopped); ok && stopped {
					bug()
				}
			})))
			synctest.Wait()
			inner, told := actor.Unbounded(), &atomic.Int32{}
			bad := s.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
				if _, ok := ctx.Message().(*actor.Started); ok {
					ctx.Watch(s.pid)
				}
			}, actor.WithMailbox(func() actor.Mailbox { return failingMailbox{inner(), told} })))
			synctest.Wait()
			watcher := s.watch()
			s.block()
			for i := range backlog {
				s.post(num(i))
			}
			s.system.Root.Stop(s.pid)
			s.gate.Lose(errOther)
			s.release()
			s.expectDiverted(0, backlog)
			s.expectDone()
			assert.Contains(t, s.script.list(), "watcher: terminated")
			assert.LessOrEqual(t, told.Load(), int32(2), "by protoactor, and by the gate")
			assert.NoError(t, s.system.Root.StopFuture(watcher).Wait())
			assert.NoError(t, s.system.Root.StopFuture(bad).Wait())
		})
	}
}

// spawnFailing spawns the stage's actor so that it panics at messages of a type.
func spawnFailing[M any](s *stage, guardian actor.SupervisorStrategy) {
	s.pid = s.system.Root.Spawn(s.gate.Props(actor.PropsFromFunc(func(ctx actor.Context) {
		s.receive(ctx)
		if _, ok := ctx.Message().(M); ok {
			bug()
		}
	}, actor.WithGuardian(guardian))))
}

func TestAPanicAtTheLastChildsEndComesToItsEnd(t *testing.T) {
	perform(t, func(s *stage) {
		spawnFailing[*actor.Terminated](s, restartFailing)
		s.do(func(ctx actor.Context) {
			ctx.Spawn(actor.PropsFromFunc(func(actor.Context) {}))
		})
		synctest.Wait()
		s.stop()
		s.expectScript("*actor.Started", "*actor.Stopping", "*actor.Terminated", "*actor.Stopped", "done")
		s.expectDone()
	})
}

// The stop that the gate makes of a restart panics in turn.
func TestAPanicInAStopThatWasARestart(t *testing.T) {
	perform(t, func(s *stage) {
		spawnFailing[*actor.Stopping](s, restartFailing)
		s.slowChild()
		s.send(crash{})
		synctest.Wait()
		s.term.end(errTakenOver)
		s.release()
		s.expectScript("*actor.Started", "crash", "*actor.Restarting", "lost: "+errTakenOver.Error(),
			"*actor.Stopping", "*actor.Terminated", "*actor.Stopped", "done")
		s.expectDone()
	})
}

// An actor that the gate had to end leaves no timer behind.
func TestNoReceiveTimeoutAfterTheEnd(t *testing.T) {
	perform(t, func(s *stage) {
		spawnFailing[*actor.Stopping](s, ignoreFailing)
		s.do(func(ctx actor.Context) { ctx.SetReceiveTimeout(time.Second) })
		s.stop()
		s.expectDone()
		s.letters(func(d *actor.DeadLetterEvent) {
			_, timeout := d.Message.(*actor.ReceiveTimeout)
			assert.False(t, timeout)
		})
		time.Sleep(time.Minute)
		assert.NotContains(t, s.script.list(), "*actor.ReceiveTimeout")
	})
}

// heldUp is a mailbox whose Start hangs, when Started has been queued.
type heldUp struct {
	actor.Mailbox
	hold <-chan struct{}
}

func (m heldUp) Start() {
	<-m.hold
	m.Mailbox.Start()
}

// begin spawns the stage's actor: its Started hangs, and so does Spawn.
func (s *stage) begin() (spawned <-chan error) {
	over := make(chan error, 1)
	props := actor.PropsFromFunc(func(ctx actor.Context) {
		s.receive(ctx)
		if _, ok := ctx.Message().(*actor.Started); ok {
			<-s.hold
		}
	})
	go func() {
		over <- s.gate.Spawn(s.system, actor.NewPID(s.system.Address(), "guardian"), "x", props,
			actor.WithMailbox(func() actor.Mailbox { return heldUp{gate.NewMailbox(s.gate), s.hold} }))
	}()
	synctest.Wait()
	require.Empty(s.t, over)
	return over
}

// An actor that runs is known, though what spawns it has not returned: who gives it up
// must wait for it.
func TestAnActorIsKnownBeforeItsStartedRuns(t *testing.T) {
	perform(t, func(s *stage) {
		spawned := s.begin()
		s.expectScript("*actor.Started")
		require.NotNil(t, s.gate.Actor())
		s.gate.Close()
		s.gate.Stop()
		synctest.Wait()
		select {
		case <-s.gate.Done():
			require.Fail(t, "done while Started runs")
		default:
		}
		s.release()
		require.NoError(t, <-spawned)
		s.expectScript("*actor.Started", "*actor.Stopping", "*actor.Stopped", "done")
		s.expectDone()
	})
}

// Mail for it waits behind Started, and is not lost.
func TestMailForAnActorWhoseStartedRuns(t *testing.T) {
	perform(t, func(s *stage) {
		spawned := s.begin()
		s.post(num(1))
		s.gate.Drain()
		s.post(num(2))
		s.release()
		require.NoError(t, <-spawned)
		s.pid = s.gate.Actor()
		s.expectDiverted(1, 3)
		require.Equal(t, gate.Draining, s.gate.Mode())
	})
}

// An actor may outlive who is told of its end: that is a dead letter, and a subscriber that
// panics on it breaks nothing off.
func TestAnActorHearsOfItsEnd(t *testing.T) {
	perform(t, func(s *stage) {
		letters := 0
		s.letters(func(*actor.DeadLetterEvent) {
			letters++
			panic("a subscriber's bug")
		})
		gone := actor.NewPID(s.system.Address(), "gone")
		require.NoError(t, s.gate.Spawn(s.system, gone, "x", actor.PropsFromFunc(s.receive)))
		s.gate.Close()
		s.gate.Stop()
		synctest.Wait()
		<-s.gate.Done()
		require.NotZero(t, letters)
	})
}

// stage is a gate with a term under the test's control, an actor system, and a
// record of all that happened, in order.
type stage struct {
	t        *testing.T
	system   *actor.ActorSystem
	term     *deadlineTerm
	gate     *gate.Gate
	pid      *actor.PID
	script   log[string] // what the actor saw and the guardian was told
	diverted log[any]    // what Divert got
	hold     chan struct{}
}

// Messages that newStage's actors understand.
type (
	block struct{}            // waits until the stage's hold is closed
	crash struct{}            // panics
	call  func(actor.Context) // is called
	num   int                 // is noted
)

var errTakenOver = fmt.Errorf("test: %w", lease.ErrTakenOver)

// perform runs f in a bubble of fake time with a new stage.
func perform(t *testing.T, f func(s *stage), options ...func(*gate.Options)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, options...)
		defer s.close()
		f(s)
	})
}

// subtest performs a row of a table.
func subtest(t *testing.T, name string, f func(t *testing.T, s *stage)) {
	t.Run(name, func(t *testing.T) { perform(t, func(s *stage) { f(t, s) }) })
}

func newStage(t *testing.T, options ...func(*gate.Options)) *stage {
	s := &stage{t: t, system: newSystem(), hold: make(chan struct{})}
	s.term = newDeadlineTerm(store.SystemClock(), time.Hour)
	o := gate.Options{
		Term: s.term,
		Divert: func(envelope any) {
			s.script.add(fmt.Sprintf("diverted %T", actor.UnwrapEnvelopeMessage(envelope)))
			s.diverted.add(envelope)
		},
		OnLost: func(cause error) {
			assert.Error(t, s.gate.Context().Err(), "the context is done before OnLost")
			assert.Equal(t, context.Cause(s.gate.Context()), cause)
			s.script.add("lost: " + cause.Error())
		},
		OnDone: func() { s.script.add("done") },
	}
	for _, option := range options {
		option(&o)
	}
	var err error
	s.gate, err = gate.New(o)
	require.NoError(t, err)
	return s
}

// close ends whatever the test left behind, so that the bubble can end.
func (s *stage) close() {
	s.release()
	s.term.end(lease.ErrReleased)
	if s.pid != nil {
		s.system.Root.Stop(s.pid)
	}
	time.Sleep(time.Second)
	synctest.Wait()
}

func (s *stage) release() {
	select {
	case <-s.hold:
	default:
		close(s.hold)
	}
}

// receive is the stage's actor: it notes what it sees and obeys.
func (s *stage) receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case block:
		s.script.add("block")
		<-s.hold
	case crash:
		s.script.add("crash")
		panic("crash")
	case call:
		m(ctx)
	case num:
		s.script.add(fmt.Sprint(int(m)))
	default:
		s.script.add(fmt.Sprintf("%T", m))
	}
}

// spawn starts the stage's actor behind the gate, as a child of the root.
func (s *stage) spawn(options ...actor.PropsOption) {
	s.pid = s.system.Root.Spawn(s.gate.Props(actor.PropsFromFunc(s.receive, options...)))
	synctest.Wait()
}

func (s *stage) send(message any) { s.system.Root.Send(s.pid, message) }

// block makes the actor wait for release.
func (s *stage) block() {
	s.send(block{})
	synctest.Wait()
}

// do runs f in the actor.
func (s *stage) do(f func(ctx actor.Context)) {
	s.send(call(f))
	synctest.Wait()
}

// post sends through the front door.
func (s *stage) post(message any) { require.True(s.t, s.gate.Post(message)) }

// letters has f called with the dead letters.
func (s *stage) letters(f func(*actor.DeadLetterEvent)) {
	s.system.EventStream.Subscribe(func(event any) {
		if d, ok := event.(*actor.DeadLetterEvent); ok {
			f(d)
		}
	})
}

// stop stops the actor and waits until nothing moves any more.
func (s *stage) stop() {
	s.system.Root.Stop(s.pid)
	synctest.Wait()
}

func (s *stage) expectScript(want ...string) {
	s.t.Helper()
	synctest.Wait()
	assert.Equal(s.t, want, s.script.list())
}

// expectDiverted checks that exactly the numbers from to to-1 were diverted, in
// order.
func (s *stage) expectDiverted(from, to int) {
	s.t.Helper()
	synctest.Wait()
	assert.Equal(s.t, numbers(from, to), messagesOf(s.diverted.list()))
}

func (s *stage) expectDone() {
	s.t.Helper()
	synctest.Wait()
	select {
	case <-s.gate.Done():
	default:
		assert.Fail(s.t, "the gate is not done")
	}
	assert.Equal(s.t, gate.Ended, s.gate.Mode())
	assert.Error(s.t, s.gate.Context().Err())
}

func numbers(from, to int) []any {
	all := []any{}
	for i := from; i < to; i++ {
		all = append(all, num(i))
	}
	return all
}

func messagesOf(envelopes []any) []any {
	all := []any{}
	for _, e := range envelopes {
		all = append(all, actor.UnwrapEnvelopeMessage(e))
	}
	return all
}

// strategy is a supervisor made of a function.
type strategy func(supervisor actor.Supervisor, child *actor.PID)

func (f *strategy) HandleFailure(_ *actor.ActorSystem, s actor.Supervisor, child *actor.PID,
	_ *actor.RestartStatistics, _, _ any) {
	(*f)(s, child)
}

// Guardians are compared by protoactor, so a function alone won't do.
func supervise(f func(actor.Supervisor, *actor.PID)) actor.SupervisorStrategy {
	s := strategy(f)
	return &s
}

var (
	stopFailing    = supervise(func(s actor.Supervisor, child *actor.PID) { s.StopChildren(child) })
	restartFailing = supervise(func(s actor.Supervisor, child *actor.PID) { s.RestartChildren(child) })
	ignoreFailing  = supervise(func(actor.Supervisor, *actor.PID) {})
)

var errOther = errors.New("other")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newSystem returns an actor system that logs nothing. A dead letter starts a
// goroutine that lives as long as the interval.
func newSystem() *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithDeadLetterThrottleInterval(time.Millisecond), actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.NewTextHandler(io.Discard, nil))
	}))
}

// deadlineTerm is a term that checks as a real one does.
type deadlineTerm struct {
	clock    store.Clock
	deadline atomic.Pointer[store.Reading]
	ctx      context.Context
	cancel   context.CancelCauseFunc
}

const (
	termName  = "singleton/test"
	termToken = lease.Token(42)
)

func newDeadlineTerm(clock store.Clock, left time.Duration) *deadlineTerm {
	t := &deadlineTerm{clock: clock}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	t.renew(left)
	return t
}

// renew sets the deadline to left from now.
func (t *deadlineTerm) renew(left time.Duration) {
	now := t.clock.Now()
	t.deadline.Store(&store.Reading{Mono: now.Mono + left, Wall: now.Wall + int64(left)})
}

// end ends the term as its engine would: trust first, then the context.
func (t *deadlineTerm) end(cause error) {
	t.deadline.Store(&store.Reading{})
	t.cancel(cause)
}

// expire lets the deadline pass without anybody having noticed: the timer that
// ends the context is late.
func (t *deadlineTerm) expire() { t.deadline.Store(&store.Reading{}) }

func (t *deadlineTerm) Name() string             { return termName }
func (t *deadlineTerm) Token() lease.Token       { return termToken }
func (t *deadlineTerm) Context() context.Context { return t.ctx }

func (t *deadlineTerm) CheckAlive() bool {
	_, alive := t.Check()
	return alive
}

func (t *deadlineTerm) Check() (time.Duration, bool) {
	now := t.clock.Now()
	d := t.deadline.Load()
	return now.Mono, now.Mono < d.Mono && now.Wall < d.Wall
}

// log is a concurrency-safe list of what happened, in order.
type log[T any] struct {
	mu  sync.Mutex
	all []T
}

func (l *log[T]) add(v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, v)
}

func (l *log[T]) list() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]T(nil), l.all...)
}

func TestNextMessageAfterTheDeadlineIsRefused(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		s.send(num(1))
		synctest.Wait()
		s.term.expire() // and the timer is late
		s.send(num(2))
		s.send(num(3))
		s.expectScript("*actor.Started", "1", "lost: lease expired", "diverted gate_test.num", "diverted gate_test.num")
		s.expectDiverted(2, 4)
		assert.Equal(t, gate.Lost, s.gate.Mode())
		assert.ErrorIs(t, context.Cause(s.gate.Context()), lease.ErrExpired)
	})
}

// A term that dies after any number of checks lets through exactly as many
// messages: no check is shared by two of them.
func TestTheClockIsReadForEveryMessage(t *testing.T) {
	const messages = 20
	for checks := range messages {
		term := &countingTerm{left: checks + 1} // one for Started
		perform(t, func(s *stage) {
			term.deadlineTerm = s.term
			s.spawn()
			s.send(block{})
			for i := 1; i < messages; i++ {
				s.send(num(i))
			}
			s.release()
			want := []any{block{}}
			if checks > 0 {
				want = nil
			}
			synctest.Wait()
			assert.Equal(t, append(want, numbers(max(checks, 1), messages)...), messagesOf(s.diverted.list()))
		}, func(o *gate.Options) { term.deadlineTerm = o.Term.(*deadlineTerm); o.Term = term })
	}
}

// countingTerm dies after a number of checks.
type countingTerm struct {
	*deadlineTerm
	left int
}

func (c *countingTerm) Check() (time.Duration, bool) {
	at, _ := c.deadlineTerm.Check()
	c.left--
	return at, c.left >= 0
}

// Whatever the clock does, the journal holds no reading at or past the deadline
// that stood when it was made, and has one entry for each pass.
func TestTheJournalKeepsTheDeadline(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		clock := &randomClock{random: random}
		type entry struct{ at, deadline time.Duration }
		var journal []entry
		var s *stage
		synctest.Test(t, func(t *testing.T) {
			s = newStage(t, func(o *gate.Options) {
				term := o.Term.(*deadlineTerm)
				term.clock = clock
				term.renew(time.Duration(random.IntN(200)))
				o.Journal = func(name string, token lease.Token, at time.Duration) {
					assert.Equal(t, termName, name)
					assert.Equal(t, termToken, token)
					journal = append(journal, entry{at, term.deadline.Load().Mono})
				}
			})
			defer s.close()
			s.spawn()
			for i := range 200 {
				s.send(num(i))
				synctest.Wait()
				if random.IntN(4) == 0 && s.gate.CheckAlive() {
					s.term.renew(time.Duration(random.IntN(100)))
				}
			}
			refused := len(s.diverted.list())
			assert.Equal(t, 200-refused, max(0, len(journal)-1), "Started is a pass, too")
			for _, e := range journal {
				assert.Less(t, e.at, e.deadline)
			}
			s.expectDiverted(200-refused, 200)
		})
	}
}

// randomClock goes on by a random step with every look.
type randomClock struct {
	random *rand.Rand
	now    time.Duration
}

func (c *randomClock) Now() store.Reading {
	c.now += time.Duration(c.random.IntN(20))
	return store.Reading{Mono: c.now, Wall: int64(c.now)}
}

func (c *randomClock) AfterFunc(time.Duration, func()) store.Timer { panic("not used") }

func TestTheGateAddsNoAllocation(t *testing.T) {
	system := newSystem()
	term := newDeadlineTerm(store.SystemClock(), time.Hour)
	defer term.end(nil)
	g, err := gate.New(gate.Options{Term: term, Divert: func(any) {}})
	require.NoError(t, err)
	handled := make(chan struct{}, 2) // waited for, so that all that a message costs is counted
	props := actor.PropsFromFunc(func(ctx actor.Context) {
		if _, ok := ctx.Message().(*tick); ok {
			handled <- struct{}{}
		}
	})
	plain, guarded := system.Root.Spawn(props), system.Root.Spawn(g.Props(props))
	message, envelope := any(&tick{}), &actor.MessageEnvelope{Message: &tick{}}
	cost := func(send func()) float64 { // testing.AllocsPerRun cuts 0.999 down to 0
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		var before, after runtime.MemStats
		const messages = 1000
		send()
		<-handled
		runtime.ReadMemStats(&before)
		for range messages {
			send()
			<-handled
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / messages
	}
	base := cost(func() { system.Root.Send(plain, message) })
	assert.LessOrEqual(t, cost(func() { system.Root.Send(guarded, message) }), base+0.1, "protoactor makes an envelope for the decorator")
	assert.Less(t, cost(func() { g.Post(envelope) }), 0.1, "an envelope is marked without allocating")
	system.Root.Stop(plain)
	system.Root.Stop(guarded)
	<-g.Done()
}

// letter is one message of one sender.
type letter struct{ sender, n int }

// Whatever happens to an actor while many send to it, every message that came
// through the front door is handled or diverted, once, and of each sender's the
// handled ones come first, in order.
func TestNothingIsLostOrRepeatedWhateverHappens(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	ends := map[string]func(s *stage){
		"stop":  func(s *stage) { s.system.Root.Stop(s.pid) },
		"crash": func(s *stage) { s.send(crash{}) },
		"loss": func(s *stage) {
			s.gate.Lose(errOther)
			s.system.Root.Stop(s.pid)
		},
		"term ends": func(s *stage) {
			s.term.end(errTakenOver)
			s.system.Root.Stop(s.pid)
		},
		"unnoticed": func(s *stage) {
			s.term.expire()
			s.system.Root.Stop(s.pid)
		},
		"drain": func(s *stage) {
			s.gate.Drain()
			s.system.Root.Stop(s.pid)
		},
		"all at once": func(s *stage) {
			var wg sync.WaitGroup
			for _, f := range []func(){
				s.gate.Drain, func() { s.gate.Lose(errOther) }, func() { s.term.end(errTakenOver) },
				func() { s.system.Root.Stop(s.pid) }, func() { s.send(crash{}) },
				func() { s.gate.Overruns(); s.gate.Used() }, func() { s.gate.CheckAlive() },
			} {
				wg.Go(f)
			}
			wg.Wait()
			s.system.Root.Stop(s.pid)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			const senders, letters = 4, 200
			delay := time.Duration(random.IntN(200)) * time.Microsecond
			s := newStage(t)
			defer s.term.end(nil)
			var handled log[letter]
			s.pid = s.system.Root.Spawn(s.gate.Props(actor.PropsFromFunc(func(ctx actor.Context) {
				switch m := ctx.Message().(type) {
				case letter:
					handled.add(m)
				default:
					s.receive(ctx)
				}
			}, actor.WithGuardian(stopFailing))))
			var wg sync.WaitGroup
			for sender := range senders {
				wg.Go(func() {
					for n := range letters {
						m := any(letter{sender, n})
						if n%2 == 0 {
							m = &actor.MessageEnvelope{Message: m}
						}
						s.gate.Post(m)
					}
				})
			}
			time.Sleep(delay) // any moment will do
			end(s)
			wg.Wait()
			<-s.gate.Done()
			flushed := make(chan struct{})
			assert.True(t, s.gate.Flush(func() { close(flushed) }), "mail after the end has no mark of its own")
			<-flushed

			var got [senders][]int
			for _, l := range handled.list() {
				got[l.sender] = append(got[l.sender], l.n)
			}
			for _, m := range messagesOf(s.diverted.list()) {
				if l, ok := m.(letter); ok {
					got[l.sender] = append(got[l.sender], l.n)
				}
			}
			want := []int{}
			for n := range letters {
				want = append(want, n)
			}
			for sender := range senders {
				assert.Equal(t, want, got[sender], fmt.Sprintf("sender %d", sender))
			}
			assert.Equal(t, gate.Ended, s.gate.Mode())
		})
	}
}
