package gate_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/store"
)

// guardian spawns the stage's actor as its child, and tells the stage of its
// end.
func (s *stage) guardian(options ...actor.PropsOption) (parent *actor.PID) {
	return s.guardianOf(s.receive, options...)
}

// guardianOf is guardian with another actor.
func (s *stage) guardianOf(receive actor.ReceiveFunc, options ...actor.PropsOption) (parent *actor.PID) {
	parent = s.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch ctx.Message().(type) {
		case *actor.Started:
			s.pid = ctx.Spawn(s.gate.Props(actor.PropsFromFunc(receive)))
		case *actor.Terminated:
			s.script.add("parent: terminated")
		}
	}, options...))
	synctest.Wait()
	return parent
}

// slowChild gives the stage's actor a child that ends with the release.
func (s *stage) slowChild() {
	s.do(func(ctx actor.Context) {
		ctx.Spawn(actor.PropsFromFunc(func(c actor.Context) {
			if _, ok := c.Message().(*actor.Stopping); ok {
				<-s.hold
			}
		}))
	})
}

// watch makes another actor watch the stage's.
func (s *stage) watch() (watcher *actor.PID) {
	watcher = s.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch ctx.Message().(type) {
		case *actor.Started:
			ctx.Watch(s.pid)
		case *actor.Terminated:
			s.script.add("watcher: terminated")
		}
	}))
	synctest.Wait()
	return watcher
}

// expectEnd checks that the actor is gone for protoactor, too: its guardian can
// be stopped.
func (s *stage) expectEnd(parent, watcher *actor.PID) {
	s.t.Helper()
	s.expectDone()
	script := s.script.list()
	assert.Contains(s.t, script, "watcher: terminated")
	assert.Contains(s.t, script, "parent: terminated")
	_, ok := s.system.ProcessRegistry.GetLocal(s.pid.Id)
	assert.False(s.t, ok)
	assert.NoError(s.t, s.system.Root.StopFuture(parent).Wait())
	assert.NoError(s.t, s.system.Root.StopFuture(watcher).Wait())
	assert.Len(s.t, s.script.list(), len(script), "told once")
	s.pid = nil
}

// dropTold removes who was told of the end and when, which is a race of three
// actors.
func dropTold(script []string) []string {
	kept := []string{}
	for _, line := range script {
		switch line {
		case "parent: terminated", "watcher: terminated", "done":
		default:
			kept = append(kept, line)
		}
	}
	return kept
}

func TestAnOrderlyEnd(t *testing.T) {
	perform(t, func(s *stage) {
		parent := s.guardian()
		watcher := s.watch()
		s.stop()
		assert.Equal(t, []string{"*actor.Started", "*actor.Stopping", "*actor.Stopped"}, dropTold(s.script.list()))
		s.expectEnd(parent, watcher)
	})
}

// What the actor goes on with after an answer (ReenterAfter) runs before a planned end: its asker
// would never hear. The end of the term, or of the time that the stop is given, waits for nothing.
func TestAPlannedEndWaitsForContinuations(t *testing.T) {
	for how, c := range map[string]struct {
		drains, loses bool
		want          []string
	}{
		"planned":   {true, false, []string{"*actor.Started", "continued", "*actor.Stopping", "*actor.Stopped", "done"}},
		"its time":  {true, true, []string{"*actor.Started", "lost: test: lease taken over", "*actor.Stopping", "*actor.Stopped", "done"}},
		"unplanned": {false, false, []string{"*actor.Started", "*actor.Stopping", "*actor.Stopped", "done"}},
	} {
		subtest(t, how, func(t *testing.T, s *stage) {
			s.spawn()
			future := actor.NewFuture(s.system, -1)
			s.do(func(ctx actor.Context) { ctx.ReenterAfter(future, func(any, error) { s.script.add("continued") }) })
			time.AfterFunc(2*time.Second, func() { s.system.Root.Send(future.PID(), num(1)) })
			if c.drains {
				s.gate.Drain()
			}
			s.stop()
			if c.loses {
				s.gate.Lose(errTakenOver)
				s.stop()
			}
			time.Sleep(3 * time.Second)
			s.expectScript(c.want...)
		})
	}
}

func TestStartedIsWithheldUnderADeadTerm(t *testing.T) {
	perform(t, func(s *stage) {
		s.term.expire()
		parent := s.guardian()
		watcher := s.watch()
		s.send(num(0))
		s.expectDiverted(0, 1)
		s.stop()
		assert.Equal(t, []string{"lost: lease expired", "diverted gate_test.num"}, dropTold(s.script.list()),
			"who never saw Started sees neither Stopping nor Stopped")
		s.expectEnd(parent, watcher)
	})
}

// An OnInit function of the user's may have spawned children: they end first.
func TestChildrenOfAnActorThatNeverStarted(t *testing.T) {
	perform(t, func(s *stage) {
		s.term.expire()
		s.spawn(actor.WithOnInit(func(ctx actor.Context) {
			ctx.Spawn(actor.PropsFromFunc(func(c actor.Context) { s.script.add(fmt.Sprintf("child %T", c.Message())) }))
		}))
		s.stop()
		s.expectDone()
		assert.Contains(t, s.script.list(), "child *actor.Stopped")
	})
}

func TestAWatcherOfAnEndedActorIsAnswered(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		process, _ := s.system.ProcessRegistry.GetLocal(s.pid.Id)
		s.stop()
		future := actor.NewFuture(s.system, -1)
		process.SendSystemMessage(s.pid, &actor.Watch{Watcher: future.PID()})
		result, err := future.Result()
		require.NoError(t, err)
		assert.Equal(t, s.pid.Id, result.(*actor.Terminated).Who.Id)
	})
}

func TestAWatcherThatLeftIsNotTold(t *testing.T) {
	perform(t, func(s *stage) {
		s.term.expire() // so that the gate does the telling
		s.spawn()
		watcher := s.watch()
		process, _ := s.system.ProcessRegistry.GetLocal(s.pid.Id)
		process.SendSystemMessage(s.pid, &actor.Unwatch{Watcher: watcher})
		s.stop()
		s.expectDone()
		assert.NotContains(t, s.script.list(), "watcher: terminated")
		require.NoError(t, s.system.Root.StopFuture(watcher).Wait())
	})
}

func TestARestartPassesUnderALivingTerm(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn(actor.WithGuardian(restartFailing))
		s.send(crash{})
		s.send(num(1))
		s.do(func(ctx actor.Context) {
			g, ok := gate.Of(ctx)
			assert.True(t, ok, "the new incarnation finds the gate")
			assert.Same(t, s.gate, g)
		})
		s.expectScript("*actor.Started", "crash", "*actor.Restarting", "*actor.Started", "1")
	})
}

func TestARestartUnderADeadTermIsAStop(t *testing.T) {
	perform(t, func(s *stage) {
		var supervisor actor.Supervisor
		parent := s.guardian(actor.WithSupervisor(supervise(func(sv actor.Supervisor, _ *actor.PID) { supervisor = sv })))
		watcher := s.watch()
		s.send(crash{})
		s.send(num(0))
		synctest.Wait()
		s.term.expire()
		supervisor.RestartChildren(s.pid)
		s.expectDiverted(0, 1)
		assert.Equal(t, []string{"*actor.Started", "crash", "lost: lease expired", "*actor.Stopping", "*actor.Stopped",
			"diverted gate_test.num"}, dropTold(s.script.list()))
		s.expectEnd(parent, watcher)
	})
}

// A restart waits for the children to end. Meanwhile the lease is lost: there
// must be no new incarnation.
func TestALossDuringARestartIsAStop(t *testing.T) {
	for _, late := range []bool{false, true} {
		perform(t, func(s *stage) {
			parent := s.guardian()
			watcher := s.watch()
			s.slowChild()
			s.send(crash{})
			synctest.Wait()
			assert.Equal(t, []string{"*actor.Started", "crash", "*actor.Restarting"}, s.script.list())
			if late {
				s.term.expire() // the timer is late
			} else {
				s.term.end(errTakenOver)
			}
			s.release()
			s.expectDone()
			assert.NotContains(t, s.script.list()[1:], "*actor.Started")
			s.expectEnd(parent, watcher)
		})
	}
}

// A supervisor's Restart that was on its way when the actor was stopped would
// bring it back to life in plain protoactor.
func TestARestartBehindAStopIsWithheld(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		process, _ := s.system.ProcessRegistry.GetLocal(s.pid.Id)
		s.block()
		synctest.Wait()
		process.SendSystemMessage(s.pid, &actor.Stop{})
		process.SendSystemMessage(s.pid, &actor.Stop{})
		process.SendSystemMessage(s.pid, &actor.Restart{})
		process.SendSystemMessage(s.pid, &actor.Started{})
		process.SendSystemMessage(s.pid, &actor.Failure{})
		process.SendSystemMessage(s.pid, &actor.Terminated{Who: s.pid})
		s.release()
		s.expectScript("*actor.Started", "block", "*actor.Stopping", "*actor.Stopped", "done")
	})
}

func TestAnActorThatWaitsForItsChildrenIsNotBroughtBack(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		process, _ := s.system.ProcessRegistry.GetLocal(s.pid.Id)
		s.slowChild()
		s.stop()
		process.SendSystemMessage(s.pid, &actor.Restart{})
		process.SendSystemMessage(s.pid, &actor.Started{})
		synctest.Wait()
		s.release()
		s.expectScript("*actor.Started", "*actor.Stopping", "*actor.Terminated", "*actor.Stopped", "done")
		s.expectDone()
	})
}

// The name is free before Stopped runs: the end of the old actor is noticed
// though another answers to its name, and the other isn't hurt.
func TestASuccessorOfTheSameName(t *testing.T) {
	for _, panics := range []bool{false, true} {
		perform(t, func(s *stage) {
			var successor log[string]
			var next *actor.PID
			props := s.gate.Props(actor.PropsFromFunc(func(ctx actor.Context) {
				if _, ok := ctx.Message().(*actor.Stopped); ok {
					next, _ = s.system.Root.SpawnNamed(actor.PropsFromFunc(func(ctx actor.Context) {
						successor.add(fmt.Sprintf("%T", ctx.Message()))
					}), "name")
					if panics {
						panic("on the way out")
					}
				}
				s.receive(ctx)
			}))
			var err error
			s.pid, err = s.system.Root.SpawnNamed(props, "name")
			require.NoError(t, err)
			s.block()
			s.queue()
			s.system.Root.Stop(s.pid)
			s.release()
			s.expectDiverted(0, backlog)
			s.expectDone()
			s.system.Root.Send(next, num(1))
			synctest.Wait()
			assert.Equal(t, []string{"*actor.Started", "gate_test.num"}, successor.list())
			s.pid = next
		})
	}
}

func TestANameThatIsTakenLeavesTheGateUsable(t *testing.T) {
	perform(t, func(s *stage) {
		taken := s.system.Root.SpawnPrefix(actor.PropsFromFunc(func(actor.Context) {}), "taken")
		_, err := s.system.Root.SpawnNamed(s.gate.Props(actor.PropsFromFunc(s.receive)), taken.Id)
		require.ErrorIs(t, err, actor.ErrNameExists)
		s.spawn()
		s.send(num(1))
		s.expectScript("*actor.Started", "1")
		s.system.Root.Stop(taken)
	})
}

func TestAStopFindsTheContextDoneUnderADeadTerm(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		s.term.expire()
		s.stop()
		s.expectScript("*actor.Started", "lost: lease expired", "*actor.Stopping", "*actor.Stopped", "done")
	})
}

func TestASupervisorSeesTheMessageWithoutItsMark(t *testing.T) {
	for _, m := range []any{crash{}, &actor.MessageEnvelope{Message: crash{}}} {
		perform(t, func(s *stage) {
			var got any
			s.spawn(actor.WithGuardian(&inspector{func(message any) { got = message }}))
			s.post(m)
			synctest.Wait()
			assert.Equal(t, m, got)
		})
	}
}

// inspector is a supervisor that looks at what failed.
type inspector struct{ look func(message any) }

func (i *inspector) HandleFailure(_ *actor.ActorSystem, _ actor.Supervisor, _ *actor.PID,
	_ *actor.RestartStatistics, _, message any) {
	i.look(message)
}

func TestATermThatEndedBeforeTheGate(t *testing.T) {
	var lost log[error]
	synctest.Test(t, func(t *testing.T) {
		term := newDeadlineTerm(store.SystemClock(), time.Hour)
		term.end(errTakenOver)
		g, err := gate.New(gate.Options{Term: term, Divert: func(any) {}, OnLost: lost.add})
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, []error{errTakenOver}, lost.list())
		assert.Equal(t, gate.Lost, g.Mode())
		g.Close()
	})
}

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
		subtest(t, name, func(t *testing.T, s *stage) {
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
	}
}

// A crashed actor's backlog is diverted with its stop. While a supervisor takes its time the mailbox
// is suspended: a loss frees the backlog at once, also one that came before the crash.
func TestTheBacklogOfACrashedActorIsDiverted(t *testing.T) {
	for name, c := range map[string]struct {
		supervisor          actor.SupervisorStrategy
		lostFirst, lostThen bool
	}{
		"stopped":                  {stopFailing, false, false},
		"suspended":                {ignoreFailing, false, false},
		"suspended, and then lost": {ignoreFailing, false, true},
		"lost, and then suspended": {ignoreFailing, true, false},
	} {
		subtest(t, name, func(t *testing.T, s *stage) {
			s.spawn(actor.WithGuardian(c.supervisor))
			s.send(call(func(actor.Context) {
				<-s.hold
				panic("crash")
			}))
			synctest.Wait()
			s.queue()
			if c.lostFirst {
				s.gate.Lose(errOther)
			}
			s.release()
			synctest.Wait()
			if c.lostThen {
				s.gate.Lose(errOther)
			}
			diverted := 0
			if c.supervisor == stopFailing || c.lostFirst || c.lostThen {
				diverted = backlog
			}
			s.expectDiverted(0, diverted)
			assert.Equal(t, c.lostFirst, s.gate.Overruns() == 1)
			s.stop()
			s.expectBacklog()
		})
	}
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
		s.slowChild()
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
		s.letters(func(d *actor.DeadLetterEvent) { dead.add(d.Message) })
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

// Also where the loss begins when the stop has begun already.
func TestDoneWaitsForOnLost(t *testing.T) {
	for _, late := range []bool{false, true} {
		var told chan struct{}
		perform(t, func(s *stage) {
			told = make(chan struct{})
			s.pid = s.system.Root.Spawn(s.gate.Props(actor.PropsFromFunc(func(ctx actor.Context) {
				if _, ok := ctx.Message().(*actor.Stopping); ok && late {
					s.term.end(errTakenOver)
					time.Sleep(time.Second)
				}
			})))
			if !late {
				s.term.end(errTakenOver)
			}
			synctest.Wait() // OnLost is waiting
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
}

func TestPostBeforeTheSpawnDoesNothing(t *testing.T) {
	perform(t, func(s *stage) {
		assert.False(t, s.gate.Post(num(1)))
		s.spawn()
		s.expectScript("*actor.Started")
	})
}

func TestAFlushComesBehindTheMail(t *testing.T) {
	perform(t, func(s *stage) {
		flush := func() bool { return s.gate.Flush(func() { s.script.add("flushed") }) }
		assert.False(t, flush(), "there is no actor")
		s.spawn()
		s.block()
		s.post(num(0))
		s.system.Root.Stop(s.pid)
		assert.True(t, flush())
		s.release()
		s.expectScript("*actor.Started", "block", "*actor.Stopping", "*actor.Stopped", "diverted gate_test.num", "flushed", "done")
		s.post(num(1))
		assert.True(t, flush(), "what comes after the end is diverted, too")
		s.expectDiverted(0, 2)
		assert.Equal(t, []string{"diverted gate_test.num", "flushed"}, s.script.list()[7:])
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

type (
	stranger struct{ N int }
	outsider struct{ N int }
	friend   struct{ N int }
)

var run int

// A message that reaches its actor because that is on the sender's node is warned of once
// for each type, with what cures it; on a node that no other can reach it is not.
func TestMailThatCanNotTravelIsWarnedOf(t *testing.T) {
	require.NoError(t, wire.Register[friend](wire.Default, "gate.friend", nil))
	run++ // once in a process: so they are other types in each run of the test
	strangers, outsiders := reflect.ArrayOf(run, reflect.TypeFor[stranger]()), reflect.ArrayOf(run, reflect.TypeFor[outsider]())
	named := func(of string) string { return fmt.Sprintf("[%d]gate_test.%s", run, of) }
	for _, address := range []string{"a:1", "nonhost"} {
		perform(t, func(s *stage) {
			var text bytes.Buffer
			s.system = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
				return slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn}))
			}))
			s.system.ProcessRegistry.Address = address
			s.spawn()
			for range 2 {
				for _, m := range []any{
					reflect.Zero(strangers).Interface(), reflect.Zero(strangers).Interface(), reflect.New(outsiders).Interface(),
					friend{}, &friend{}, wrapperspb.Int64(1),
				} {
					s.post(m)
					s.post(&actor.MessageEnvelope{Message: m})
				}
			}
			s.send(num(1)) // it did not come by the front door
			synctest.Wait()
			if address == "nonhost" {
				require.Empty(t, text.String())
				return
			}
			lines := strings.Split(strings.TrimSpace(text.String()), "\n")
			require.Len(t, lines, 2, text.String())
			require.Contains(t, lines[0], fmt.Sprintf(`on node a:1: %[1]s is not registered: give it to node.Types, or call remoting.Register[%[1]s](`, named("stranger")))
			require.Contains(t, lines[1], fmt.Sprintf(`call remoting.Register[%s](`, named("outsider")))
		})
	}
}
