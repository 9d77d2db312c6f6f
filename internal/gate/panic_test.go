package gate_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"

	"github.com/holdfast-go/holdfast/internal/gate"
)

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
					t.Run(name, func(t *testing.T) { aStopThatFails(t, bug, supervisor.strategy, where, child, lost) })
				}
			}
		}
	}
}

func bug() { panic("on the way out") }

func aStopThatFails(t *testing.T, fail func(), supervisor actor.SupervisorStrategy, where any, child, lost bool) {
	perform(t, func(s *stage) {
		receive := func(ctx actor.Context) {
			s.receive(ctx)
			if fmt.Sprintf("%T", ctx.Message()) == fmt.Sprintf("%T", where) {
				fail()
			}
			if _, ok := ctx.Message().(*actor.Started); ok && child {
				ctx.Spawn(actor.PropsFromFunc(func(actor.Context) {}))
			}
		}
		parent := s.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			switch ctx.Message().(type) {
			case *actor.Started:
				s.pid = ctx.Spawn(s.gate.Props(actor.PropsFromFunc(receive)))
			case *actor.Terminated:
				s.script.add("parent: terminated")
			}
		}, actor.WithSupervisor(supervisor)))
		synctest.Wait()
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
	for how, fail := range map[string]func(){"panic": bug} {
		for _, lost := range []bool{false, true} {
			for _, stopped := range []bool{false, true} { // Stopped fails, too
				t.Run(fmt.Sprintf("%s/lost=%v/stopped=%v", how, lost, stopped), func(t *testing.T) {
					anEndThatFails(t, fail, lost, stopped)
				})
			}
		}
	}
}

func anEndThatFails(t *testing.T, fail func(), lost, stopped bool) {
	calls := 0
	perform(t, func(s *stage) {
		receive := func(ctx actor.Context) {
			s.receive(ctx)
			if _, ok := ctx.Message().(*actor.Stopped); ok && stopped {
				fail()
			}
		}
		parent := s.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			switch ctx.Message().(type) {
			case *actor.Started:
				s.pid = ctx.Spawn(s.gate.Props(actor.PropsFromFunc(receive)))
			case *actor.Terminated:
				s.script.add("parent: terminated")
			}
		}))
		synctest.Wait()
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
				fail()
			}
		}
	})
}

// failingMailbox fails where its actor is told of another's end, for many times.
type failingMailbox struct {
	actor.Mailbox
	fail func()
	told *atomic.Int32
}

func (m failingMailbox) PostSystemMessage(message any) {
	if _, ok := message.(*actor.Terminated); ok && m.told.Add(1) < 100 {
		m.fail()
	}
	m.Mailbox.PostSystemMessage(message)
}

// Who watches may have a mailbox of their own that fails: the others are told, and the end is one,
// whoever tells of it.
func TestAnEndThatAWatchersMailboxFailsAt(t *testing.T) {
	for how, fail := range map[string]func(){"panic": bug} {
		for _, stopped := range []bool{false, true} { // Stopped fails, so that the gate tells
			t.Run(fmt.Sprintf("%s/stopped=%v", how, stopped), func(t *testing.T) {
				perform(t, func(s *stage) {
					s.pid = s.system.Root.Spawn(s.gate.Props(actor.PropsFromFunc(func(ctx actor.Context) {
						s.receive(ctx)
						if _, ok := ctx.Message().(*actor.Stopped); ok && stopped {
							fail()
						}
					})))
					synctest.Wait()
					inner, told := actor.Unbounded(), &atomic.Int32{}
					bad := s.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
						if _, ok := ctx.Message().(*actor.Started); ok {
							ctx.Watch(s.pid)
						}
					}, actor.WithMailbox(func() actor.Mailbox { return failingMailbox{inner(), fail, told} })))
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
			})
		}
	}
}

func TestAPanicAtTheLastChildsEndComesToItsEnd(t *testing.T) {
	perform(t, func(s *stage) {
		s.pid = s.system.Root.Spawn(s.gate.Props(actor.PropsFromFunc(func(ctx actor.Context) {
			s.receive(ctx)
			if _, ok := ctx.Message().(*actor.Terminated); ok {
				panic("on the way out")
			}
		}, actor.WithGuardian(restartFailing))))
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
		s.pid = s.system.Root.Spawn(s.gate.Props(actor.PropsFromFunc(func(ctx actor.Context) {
			s.receive(ctx)
			if _, ok := ctx.Message().(*actor.Stopping); ok {
				panic("on the way out")
			}
		}, actor.WithGuardian(restartFailing))))
		s.do(func(ctx actor.Context) {
			ctx.Spawn(actor.PropsFromFunc(func(c actor.Context) {
				if _, ok := c.Message().(*actor.Stopping); ok {
					<-s.hold
				}
			}))
		})
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
		s.pid = s.system.Root.Spawn(s.gate.Props(actor.PropsFromFunc(func(ctx actor.Context) {
			s.receive(ctx)
			if _, ok := ctx.Message().(*actor.Stopping); ok {
				panic("on the way out")
			}
		}, actor.WithGuardian(ignoreFailing))))
		s.do(func(ctx actor.Context) { ctx.SetReceiveTimeout(time.Second) })
		s.stop()
		s.expectDone()
		s.system.EventStream.Subscribe(func(event any) {
			if d, ok := event.(*actor.DeadLetterEvent); ok {
				_, timeout := d.Message.(*actor.ReceiveTimeout)
				assert.False(t, timeout)
			}
		})
		time.Sleep(time.Minute)
		assert.NotContains(t, s.script.list(), "*actor.ReceiveTimeout")
	})
}
