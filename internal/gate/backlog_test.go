package gate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/gate"
)

const backlog = 1000

// queue fills the mailbox of an actor that is busy, half of it from the front
// door.
func (s *stage) queue() {
	for i := range backlog {
		switch i % 4 {
		case 0:
			s.send(num(i))
		case 1:
			s.send(&actor.MessageEnvelope{Message: num(i), Sender: s.pid})
		case 2:
			s.post(num(i))
		case 3:
			s.post(&actor.MessageEnvelope{Message: num(i), Sender: s.pid})
		}
	}
	synctest.Wait()
}

// expectBacklog checks that the whole backlog was diverted before the gate was
// done, each message in the form in which it was posted.
func (s *stage) expectBacklog() {
	s.t.Helper()
	s.expectDiverted(0, backlog)
	for i, e := range s.diverted.list() {
		envelope, ok := e.(*actor.MessageEnvelope)
		require.Equal(s.t, i%2 == 1, ok)
		if ok {
			require.Same(s.t, s.pid, envelope.Sender)
		}
	}
	script := s.script.list()
	assert.Equal(s.t, "done", script[len(script)-1])
	s.expectDone()
}

func TestTheBacklogOfAStoppedActorIsDiverted(t *testing.T) {
	for name, before := range map[string]func(*gate.Gate){
		"open":     func(*gate.Gate) {},
		"draining": (*gate.Gate).Drain,
		"lost":     func(g *gate.Gate) { g.Lose(errOther) },
	} {
		t.Run(name, func(t *testing.T) {
			perform(t, func(s *stage) {
				s.spawn()
				s.block()
				s.queue()
				before(s.gate)
				s.system.Root.Stop(s.pid)
				synctest.Wait()
				assert.Empty(t, s.diverted.list(), "nothing moves while the handler runs")
				s.release()
				s.expectBacklog()
			})
		})
	}
}

func TestTheBacklogOfACrashedActorIsDiverted(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn(actor.WithGuardian(stopFailing))
		s.block()
		s.send(crash{})
		s.queue()
		s.release()
		s.expectBacklog()
		assert.Equal(t, []string{"*actor.Started", "block", "crash", "*actor.Stopping", "*actor.Stopped"}, s.script.list()[:5])
	})
}

// While a supervisor takes its time the mailbox is suspended. A loss frees the
// backlog at once, a planned end with the stop.
func TestTheBacklogOfASuspendedActorIsDiverted(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn(actor.WithGuardian(ignoreFailing))
		s.block()
		s.send(crash{})
		s.queue()
		s.release()
		synctest.Wait()
		assert.Empty(t, s.diverted.list())
		s.stop()
		s.expectBacklog()
	})
	perform(t, func(s *stage) {
		s.spawn(actor.WithGuardian(ignoreFailing))
		s.block()
		s.send(crash{})
		s.queue()
		s.release()
		synctest.Wait()
		s.gate.Lose(errOther)
		s.expectDiverted(0, backlog)
		s.stop()
		s.expectBacklog()
	})
}

// The handler that crashes was running when the lease was lost: the suspension
// comes after the loss.
func TestTheBacklogOfACrashAfterALossIsDiverted(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn(actor.WithGuardian(ignoreFailing))
		s.send(call(func(actor.Context) {
			<-s.hold
			panic("crash")
		}))
		synctest.Wait()
		s.queue()
		s.gate.Lose(errOther)
		s.release()
		s.expectDiverted(0, backlog)
		assert.EqualValues(t, 1, s.gate.Overruns())
		s.stop()
		s.expectBacklog()
	})
}

func TestWhatAnActorTookIsNotDiverted(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		s.block()
		for i := range 10 {
			s.post(num(i))
		}
		s.system.Root.Poison(s.pid)
		for i := 10; i < 20; i++ {
			s.post(num(i))
		}
		s.release()
		s.expectDiverted(10, 20)
		assert.Equal(t, []string{"*actor.Started", "block", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9",
			"*actor.Stopping", "*actor.Stopped"}, s.script.list()[:14])
		s.expectDone()
	})
}

// A stopping actor that waits for its children gets no new work, but may finish.
func TestAStoppingActorTakesNoFrontDoorMail(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		s.do(func(ctx actor.Context) {
			ctx.Spawn(actor.PropsFromFunc(func(c actor.Context) {
				if _, ok := c.Message().(*actor.Stopping); ok {
					<-s.hold
				}
			}))
		})
		s.stop()
		s.post(num(1))
		s.send(num(2))
		s.expectScript("*actor.Started", "*actor.Stopping", "diverted gate_test.num", "2")
		s.release()
		s.expectDiverted(1, 2)
		s.expectDone()
	})
}

func TestMailAfterTheEnd(t *testing.T) {
	perform(t, func(s *stage) {
		var dead log[any]
		sub := s.system.EventStream.Subscribe(func(event any) {
			if d, ok := event.(*actor.DeadLetterEvent); ok {
				dead.add(d.Message)
			}
		})
		defer s.system.EventStream.Unsubscribe(sub)
		s.spawn()
		process, _ := s.system.ProcessRegistry.GetLocal(s.pid.Id)
		s.stop()
		s.expectDone()
		s.post(num(0))
		process.SendUserMessage(s.pid, num(1)) // a sender that had resolved the PID
		s.expectDiverted(0, 2)
		s.send(num(2))
		synctest.Wait()
		assert.Equal(t, []any{num(2)}, dead.list())
		s.expectDiverted(0, 2)
		s.pid = nil
	})
}

func TestInternalMailMayGoElsewhere(t *testing.T) {
	var internal log[any]
	perform(t, func(s *stage) {
		s.spawn()
		s.block()
		s.post(num(0))
		s.system.Root.Poison(s.pid)
		s.post(num(1))
		s.send(num(2))
		s.gate.Lose(errOther)
		s.release()
		s.expectDiverted(0, 2)
		assert.Equal(t, []any{&actor.PoisonPill{}, num(2)}, internal.list())
	}, func(o *gate.Options) { o.Internal = func(envelope any) { internal.add(envelope) } })
}

func TestTheContextEndsWithTheActor(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		s.do(func(actor.Context) { assert.NoError(t, s.gate.Context().Err()) })
		s.stop()
		s.expectScript("*actor.Started", "*actor.Stopping", "*actor.Stopped", "done")
		assert.ErrorIs(t, context.Cause(s.gate.Context()), gate.ErrEnded)
		s.term.end(errTakenOver)
		s.gate.Lose(errOther)
		s.expectScript("*actor.Started", "*actor.Stopping", "*actor.Stopped", "done")
	})
}

func TestDoneWaitsForOnLost(t *testing.T) {
	var told chan struct{}
	perform(t, func(s *stage) {
		told = make(chan struct{})
		s.spawn()
		s.term.end(errTakenOver)
		synctest.Wait() // OnLost is waiting
		s.system.Root.Stop(s.pid)
		time.Sleep(time.Second)
		select {
		case <-s.gate.Done():
			assert.Fail(t, "done before OnLost returned")
		default:
		}
		close(told)
		s.expectDone()
	}, func(o *gate.Options) { o.OnLost = func(error) { <-told } })
}

// The same, with a loss that begins when the stop has begun already.
func TestDoneWaitsForOnLostOfALateLoss(t *testing.T) {
	var told chan struct{}
	perform(t, func(s *stage) {
		told = make(chan struct{})
		s.pid = s.system.Root.Spawn(s.gate.Props(actor.PropsFromFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(*actor.Stopping); ok {
				s.term.end(errTakenOver)
				time.Sleep(time.Second)
			}
		})))
		s.system.Root.Stop(s.pid)
		time.Sleep(time.Minute)
		select {
		case <-s.gate.Done():
			assert.Fail(t, "done before OnLost returned")
		default:
		}
		close(told)
		s.expectDone()
	}, func(o *gate.Options) { o.OnLost = func(error) { <-told } })
}

func TestPostBeforeTheSpawnDoesNothing(t *testing.T) {
	perform(t, func(s *stage) {
		assert.False(t, s.gate.Post(num(1)))
		s.spawn()
		s.expectScript("*actor.Started")
	})
}

func TestCloseWithoutAnActor(t *testing.T) {
	perform(t, func(s *stage) {
		s.gate.Close()
		s.gate.Close()
		s.expectDone()
		assert.ErrorIs(t, context.Cause(s.gate.Context()), gate.ErrEnded)
		s.term.end(errTakenOver)
		s.expectScript()

		// What is spawned all the same sees nothing, but can be stopped.
		s.spawn()
		s.send(num(0))
		s.send(num(1))
		s.expectDiverted(0, 2)
		require.NoError(t, s.system.Root.StopFuture(s.pid).Wait())
		s.expectScript("diverted gate_test.num", "diverted gate_test.num")
	})
}

func TestCloseOfAWorkingGate(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		s.gate.Close()
		s.send(num(0))
		s.expectDiverted(0, 1)
		assert.Equal(t, gate.Ended, s.gate.Mode())
		s.stop()
		s.expectDone()
		s.expectScript("*actor.Started", "diverted gate_test.num", "*actor.Stopping", "*actor.Stopped", "done")
	})
}
