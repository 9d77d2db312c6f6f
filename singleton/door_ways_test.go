package singleton_test

import (
	"context"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/singleton"
)

// slowToWarn has a manager's logger take a second for the line by which holdUp holds it up.
func slowToWarn() singleton.Option {
	return singleton.WithLogger(zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(io.Discard), zapcore.WarnLevel),
		zap.Hooks(func(e zapcore.Entry) error {
			if e.Message == "undeliverable message" {
				time.Sleep(time.Second)
			}
			return nil
		})))
}

// holdUp keeps a manager busy that was started with slowToWarn, so that mail waits at its door.
func (n *node) holdUp(m *singleton.Manager) {
	n.system.Root.Send(m.PID(), &wire.Envelope{Name: "no name of its"})
	synctest.Wait()
}

// touched is answered by protoactor in place of the actor that gets it, which it notes.
type touched struct{ by *[]string }

func (m touched) GetAutoResponse(ctx actor.Context) any {
	*m.by = append(*m.by, ctx.Self().Id)
	return "touched"
}

// What protoactor answers in place of an actor is answered once, by the child: no users' code runs on
// the manager.
func TestTheChildAnswersInItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		ma := a.run("x", slowToWarn())
		until(t, time.Second, "hosts", active(ma))
		var by []string
		for _, held := range []bool{false, true} { // by the open door, and by the manager
			if held {
				a.holdUp(ma)
			}
			asked := time.Now()
			answer, err := a.system.Root.RequestFuture(ma.PID(), touched{&by}, 5*time.Second).Result()
			require.NoError(t, err)
			require.Equal(t, held, time.Since(asked) >= time.Second)
			require.Equal(t, "touched", answer)
		}
		require.Len(t, by, 2)
		require.NotContains(t, by, ma.PID().Id)
	})
}

// A marker is answered when all that came before it has been handed over, also where that
// waits for the manager.
func TestAMarkerDoesNotOvertakeMail(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		ma := a.hosts("x", slowToWarn())
		var handled, answered time.Time
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if j, ok := ctx.Message().(job); ok && j.Sender == "b" {
				handled = time.Now()
			}
			return false
		}
		_, err := b.system.Root.SpawnNamed(actor.PropsFromFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(*wire.MarkerAck); ok {
				answered = time.Now()
			}
		}), ma.PID().Id)
		require.NoError(t, err)
		a.holdUp(ma)
		to, token := actor.NewPID("a:1", ma.PID().Id), uint64(ma.Status().Token)
		b.system.Root.Send(to, &wire.Envelope{Name: "singleton/x", Token: token, Type: "test.job", Codec: "json", Payload: []byte(`{"Sender":"b","Number":1}`)})
		b.system.Root.Send(to, &wire.Marker{Name: "singleton/x", From: &wire.Node{Address: "b:1", Incarnation: "b-life"}, Number: 1, Token: token})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.False(t, handled.IsZero())
		require.False(t, answered.IsZero())
		require.False(t, answered.Before(handled), "the answer says that it was handed over, %v before it was", handled.Sub(answered))
	})
}

// What waits when a manager is stopped by force is a dead letter, once; nil in a batch is none.
func TestABatchThatWaitsAtTheEndIsADeadLetterOnce(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		ma := a.run("x", singleton.WithProxyOnly(), slowToWarn())
		var letters atomic.Int32
		a.system.EventStream.Subscribe(func(e any) {
			if l, ok := e.(*actor.DeadLetterEvent); ok {
				if _, ok := jobOf(l.Message); ok {
					letters.Add(1)
				}
			}
		})
		a.holdUp(ma)
		a.system.Root.Send(ma.PID(), batchOf{job{"a", 1}})
		a.system.Root.Stop(ma.PID())
		<-ma.Done()
		time.Sleep(time.Second)
		require.EqualValues(t, 1, letters.Load())
	})
}

// A nil in a batch that waits at the end keeps nothing busy.
func TestANilThatWaitsAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		ma := a.run("x", singleton.WithProxyOnly(), slowToWarn())
		a.holdUp(ma)
		a.system.Root.Send(ma.PID(), batchOf{nil})
		a.system.Root.Stop(ma.PID())
		<-ma.Done()
		time.Sleep(time.Second) // never, if the mailbox spins
	})
}

// touchBatch is a batch that protoactor answers, as one of its PubSub is.
type touchBatch struct{ get func() []any }

func (b touchBatch) GetMessages() []any                { return b.get() }
func (b touchBatch) GetAutoResponse(actor.Context) any { return "touched" }

// What is in a batch is asked for under no lock: others may send meanwhile.
func TestABatchIsTakenApartUnderNoLock(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		ma := a.run("x", slowToWarn())
		until(t, time.Second, "hosts", active(ma))
		var sent atomic.Bool
		free := false
		a.holdUp(ma)
		a.system.Root.Send(ma.PID(), touchBatch{func() []any {
			go func() { a.system.Root.Send(ma.PID(), job{"other", 1}); sent.Store(true) }()
			for i := 0; i < 100_000 && !sent.Load(); i++ {
				runtime.Gosched()
			}
			free = sent.Load()
			return []any{job{"a", 1}}
		}})
		a.system.Root.Send(ma.PID(), job{"a", 2})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.True(t, free, "another sender was held up by a batch's code")
		var got []job
		for _, j := range c.log.snapshot()[0].jobs {
			if j.Sender == "a" {
				got = append(got, j)
			}
		}
		require.Equal(t, []job{{"a", 1}, {"a", 2}}, got)
	})
}

// A batch that panics is its sender's trouble; what waits behind it is not lost.
func TestABatchThatPanicsLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		ma := a.hosts("x", slowToWarn())
		a.holdUp(ma)
		func() {
			defer func() { _ = recover() }()
			a.system.Root.Send(ma.PID(), touchBatch{func() []any { panic("a bug") }})
		}()
		a.system.Root.Send(ma.PID(), job{"a", 1})
		time.Sleep(5 * time.Second)
		require.Equal(t, []job{{"a", 1}}, c.log.snapshot()[0].jobs)
	})
}

// What only an actor system says of an actor's life is not believed where another node says
// it in an envelope, either.
func TestForgedLifeInAnEnvelope(t *testing.T) {
	for _, msg := range []proto.Message{&actor.Terminated{Who: actor.NewPID("c:1", "precious")}, &actor.Watch{}, &actor.Stop{}, &actor.PoisonPill{}} {
		t.Run(string(msg.ProtoReflect().Descriptor().Name()), func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				a, b := c.node("a"), c.node("b")
				var seen atomic.Int32
				c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
					switch ctx.Message().(type) {
					case *actor.Terminated, *actor.Watch, *actor.Stop:
						seen.Add(1)
					}
					return false
				}
				ma := a.hosts("x")
				payload, err := proto.Marshal(msg)
				require.NoError(t, err)
				b.system.Root.Send(actor.NewPID("a:1", ma.PID().Id), &wire.Envelope{Name: "singleton/x", Token: uint64(ma.Status().Token),
					Type: string(msg.ProtoReflect().Descriptor().FullName()), Codec: "proto", Payload: payload})
				time.Sleep(time.Second)
				require.Zero(t, seen.Load(), "the child was told")
				require.Equal(t, 1, ma.Status().Lives)
				require.Equal(t, 1, ma.Status().Undeliverable)
				a.mustAsk(ma.PID(), 1)
			})
		})
	}
}

// What was asked with a deadline is not delivered out of a buffer after that, in whichever
// form it came.
func TestADeadlineGoesWithAPlainMessage(t *testing.T) {
	for form, msg := range map[string]any{"enclosed": job{"late", 1}, "plain": wrapperspb.String("1 late")} {
		t.Run(form, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				a, b := c.node("a"), c.node("b")
				c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
					if _, ok := ctx.Message().(*actor.Stopping); ok {
						time.Sleep(3 * time.Second)
					}
					return false
				}
				ma, mb := a.hosts("x"), b.run("x")
				b.mustAsk(mb.PID(), 0)
				go func() { _ = ma.Stop(context.Background()) }()
				time.Sleep(time.Second) // the child is on its way out
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, err := singleton.Ask[done](ctx, mb, msg)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				until(t, 30*time.Second, "the other hosts", active(mb))
				time.Sleep(time.Second)
				for _, l := range c.log.snapshot() {
					for _, j := range l.jobs {
						require.False(t, strings.HasPrefix(j.Sender, "late"), "nobody waits for it any more")
					}
				}
			})
		})
	}
}
