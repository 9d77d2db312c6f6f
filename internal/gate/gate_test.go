package gate_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
		s.post(nil)
		s.post((*actor.MessageEnvelope)(nil))
		s.send(num(1))
		s.expectScript("*actor.Started", "1")
	})
}
