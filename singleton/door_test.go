package singleton_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/singleton"
)

// countPlain counts what comes to a node by the short way for plain messages.
func countPlain(n *node, name string) (came *atomic.Int64) {
	came = new(atomic.Int64)
	p, ok := actors.FamiliesOf(n.system).Resolve(actors.FamilyID("%s/"+name, "1/"))
	require.True(n.c.t, ok)
	actors.FamiliesOf(n.system).Serve("%s/"+name, func(string) (actor.Process, bool) {
		came.Add(1)
		return p, true
	})
	return came
}

// Protocol Buffers messages travel to the host as they are, all else in envelopes; to a host
// that does not say that it takes them, all do.
func TestPlainMessagesToTheHost(t *testing.T) {
	for _, takes := range []bool{true, false} {
		subtest(t, fmt.Sprint(takes), func(t *testing.T, c *cluster) {
			a, b := c.node("a"), c.node("b")
			actors.FamiliesOf(a.system).Enable(takes)
			a.hosts("x")
			came := countPlain(a, "x")
			mb := b.run("x")
			for i, msg := range []any{job{"b", 9}, wrapperspb.String("1 b"), job{"b", 2}, wrapperspb.String("3 b"),
				&actor.MessageEnvelope{Message: wrapperspb.String("4 b"), Header: map[string]string{"h": "v"}}} {
				synctest.Wait() // the controller is done
				before := came.Load()
				d, err := singleton.Ask[done](t.Context(), mb, msg)
				require.NoError(t, err)
				require.Equal(t, "a", d.Node)
				_, value := msg.(job)
				require.Equal(t, takes && i > 0 && !value, came.Load() > before, "%d: %v", i, msg)
			}
		})
	}
}

// What other nodes send to the ids of the short way is checked as what they send in
// envelopes: no id of another form is anybody's, and a token yet to come is waited for, in
// vain.
func TestPlainMessagesThatWereMadeUp(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		ma := a.hosts("x")
		dead := a.deadLetters()
		for i, rest := range []string{"", "x", "/", "-1/", "99999999999999999999/", "1/x"} {
			b.system.Root.Send(actor.NewPID("a:1", actors.FamilyID("%s/x", rest)), wrapperspb.String("1 b"))
			time.Sleep(time.Second)
			require.EqualValues(t, i+1, dead.Load(), "%q", rest)
		}
		b.system.Root.Send(actor.NewPID("a:1", actors.FamilyID("%s/x", "1/")), &actor.Stopped{})
		b.system.Root.Send(actor.NewPID("a:1", actors.FamilyID("%s/x", "1000/")), wrapperspb.String("2 b"))
		b.system.Root.Send(actor.NewPID("a:1", actors.FamilyID("%s/x", "0/")), wrapperspb.String("3 b"))
		time.Sleep(3 * ttl)
		require.Equal(t, 1, ma.Status().Undeliverable)
		require.Equal(t, 1, len(c.log.snapshot()[0].jobs))
		a.mustAsk(ma.PID(), 4)
	})
}

// Mail that goes straight to a host that does not read takes up the window of its node, and
// no more goes there, whichever form it travels in.
func TestStraightMailTakesRoomInTheWindow(t *testing.T) {
	for form, msg := range map[string]any{"plain": wrapperspb.String("1 s"), "enclosed": job{"s", 1}} {
		subtest(t, form, func(t *testing.T, c *cluster) {
			a, b := c.node("a"), c.node("b")
			a.hosts("x")
			mb := b.run("x", singleton.WithBuffer(50, hosting.DropNewest))
			b.mustAsk(mb.PID(), 0)
			time.Sleep(time.Second) // it takes no room any more
			before, _ := c.net.Wire("b:1", "a:1")
			c.net.Freeze("a:1")
			for range transport.MaxMessages + 1000 {
				b.system.Root.Send(mb.PID(), msg)
			}
			time.Sleep(100 * time.Millisecond)
			require.Equal(t, 50, mb.Status().Buffered)
			require.Equal(t, 950, mb.Status().Dropped)
			after, _ := c.net.Wire("b:1", "a:1")
			require.Less(t, after-before, uint64(transport.MaxMessages+100))
			c.net.Thaw("a:1")
			until(t, 30*time.Second, "handled", func() bool {
				return mb.Status().Buffered == 0 && len(c.log.snapshot()[0].jobs) == transport.MaxMessages+50+1
			})
		})
	}
}

// batchOf is a batch, which is handled after what is in it.
type batchOf []any

func (b batchOf) GetMessages() []any { return b }

// Who sent what the host can't read, by the ways past Envelopes, is told why.
func TestAPlainMessageThatCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		m := a.hosts("x")
		p, ok := actors.FamiliesOf(a.system).Resolve(actors.FamilyID("%s/x", "1/"))
		require.True(t, ok)
		for reason, what := range map[hosting.Reason]*wire.Unread{
			hosting.ReasonUndecodable: {Type: "google.protobuf.StringValue", Payload: []byte{0x0a, 1, 0xff}},
			hosting.ReasonUnknownType: {Type: "no.such.Type"},
		} {
			answer := actor.NewFuture(a.system, time.Second)
			p.SendUserMessage(actor.NewPID("a:1", "x"), &actor.MessageEnvelope{Message: what, Sender: answer.PID()})
			got, err := answer.Result()
			require.NoError(t, err)
			u, ok := got.(hosting.Undeliverable)
			require.True(t, ok, "%T", got)
			require.Equal(t, reason, u.Notice().Reason)
		}
		synctest.Wait() // it is told before it is published
		require.Equal(t, 2, m.Status().Undeliverable)
	})
}

// 3: headers take room in the window to a host that does not read, as payloads do.
func TestScenarioMail3LargeHeaders(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		a.hosts("x")
		mb := b.run("x", singleton.WithBuffer(1000, hosting.DropNewest))
		for _, msg := range []any{wrapperspb.String("1 b"), job{"b", 1}} { // by the short way, and in envelopes
			b.mustAsk(mb.PID(), 0)
			synctest.Wait()
			c.net.Freeze("a:1")
			for range 300 {
				b.system.Root.Send(mb.PID(), &actor.MessageEnvelope{Message: msg,
					Header: map[string]string{"h": strings.Repeat("h", 50<<10)}})
			}
			time.Sleep(time.Second)
			_, bytes := c.net.Peak("b:1", "a:1")
			require.LessOrEqual(t, bytes, transport.MaxBytes+128<<10, "%T", msg)
			require.Greater(t, bytes, transport.MaxBytes/2)
			c.net.Thaw("a:1")
			time.Sleep(5 * time.Second)
			require.Zero(t, mb.Status().Buffered)
		}
		require.Len(t, c.log.snapshot()[0].jobs, 602)
	})
}

// An actor may be called what questions' ids begin with: what its children ask, and end, is
// no question that is given up.
func TestTheChildrenOfAnActorCalledAsk(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		mb := b.run("x", singleton.WithProxyOnly())
		_, err := b.system.Root.SpawnNamed(actor.PropsFromFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(*actor.Started); !ok {
				return
			}
			for _, number := range []int{1, 3} { // in both forms
				child := ctx.SpawnPrefix(actor.PropsFromFunc(func(ctx actor.Context) {
					if _, ok := ctx.Message().(*actor.Started); ok {
						ctx.Request(mb.PID(), formOf(job{"s", number}))
						ctx.Stop(ctx.Self())
					}
				}), "children")
				require.True(t, strings.HasPrefix(child.Id, "ask/children$"))
			}
		}), "ask")
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, 2, mb.Status().Buffered)
		ma := a.run("x")
		until(t, time.Minute, "hosts", active(ma))
		time.Sleep(5 * time.Second)
		require.Zero(t, mb.Status().Undeliverable)
		require.Len(t, c.log.snapshot()[0].jobs, 2)
	})
}

// The dead letters of what came plainly have the PID that it was for, and nothing of how
// long its asker waits.
func TestDeadLettersOfPlainMessages(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		a.hosts("x")
		id := actors.FamilyID("%s/x", "1/")
		p, ok := actors.FamiliesOf(a.system).Resolve(id)
		require.True(t, ok)
		var dead []*actor.PID
		letters(a.system, func(d *actor.DeadLetterEvent) { dead = append(dead, d.PID) })
		p.SendUserMessage(&actor.PID{Address: "holdfast:direct", Id: id, RequestId: 77}, &actor.Started{})
		synctest.Wait()
		require.Len(t, dead, 1)
		require.Equal(t, id, dead[0].Id)
		require.Equal(t, "a:1", dead[0].Address, "the mark by which a process is found is not shown")
		require.Zero(t, dead[0].RequestId)
	})
}

// slowToWarn has a manager's logger take a second for the line by which holdUp holds it up.
func slowToWarn() singleton.Option {
	core, _ := observer.New(zap.WarnLevel)
	return singleton.WithLogger(zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
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
		when(c, nil, func(j job) {
			if j.Sender == "b" {
				handled = time.Now()
			}
		})
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
		var dead atomic.Int64
		deadJobs(a.system, &dead)
		a.holdUp(ma)
		a.system.Root.Send(ma.PID(), batchOf{nil, job{"a", 1}})
		a.system.Root.Stop(ma.PID())
		<-ma.Done()
		time.Sleep(time.Second)
		require.EqualValues(t, 1, dead.Load())
	})
}

// What only an actor system says of an actor's life is not believed where another node says
// it in an envelope, either.
func TestForgedLifeInAnEnvelope(t *testing.T) {
	for _, msg := range []proto.Message{&actor.Terminated{Who: actor.NewPID("c:1", "precious")}, &actor.Watch{}, &actor.Stop{}, &actor.PoisonPill{}} {
		subtest(t, string(msg.ProtoReflect().Descriptor().Name()), func(t *testing.T, c *cluster) {
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
	}
}

// What was asked with a deadline is not delivered out of a buffer after that, in whichever
// form it came.
func TestADeadlineGoesWithAPlainMessage(t *testing.T) {
	for form, msg := range map[string]any{"enclosed": job{"late", 1}, "plain": wrapperspb.String("1 late")} {
		subtest(t, form, func(t *testing.T, c *cluster) {
			a, b := c.node("a"), c.node("b")
			when(c, nil, func(*actor.Stopping) { time.Sleep(3 * time.Second) })
			ma, mb := a.hosts("x"), b.run("x")
			b.mustAsk(mb.PID(), 0)
			go func() { _ = ma.Stop(context.Background()) }()
			time.Sleep(time.Second) // the child is on its way out
			_, err := singleton.Ask[done](contextFor(100*time.Millisecond), mb, msg)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			until(t, 30*time.Second, "the other hosts", active(mb))
			time.Sleep(time.Second)
			require.Empty(t, c.log.jobs("late"), "its asker does not wait for it any more")
		})
	}
}

// What looks like the actor system's word on the manager's life, and was sent as mail, is
// not believed.
func TestForgedLife(t *testing.T) {
	for _, msg := range []any{&actor.Started{}, &actor.Stopping{}, &actor.Stopped{}, &actor.Restarting{}, &actor.Stop{}, &actor.Terminated{}, &actor.Watch{}, &actor.PoisonPill{}} {
		bubble(t, func(t *testing.T, c *cluster) {
			_, poison := msg.(*actor.PoisonPill)
			require.True(t, poison || wire.OfSystem(msg))
			a, b := c.node("a"), c.node("b")
			ma, mb := a.hosts("x"), b.run("x")
			a.system.Root.Send(ma.PID(), msg)
			a.system.Root.Send(ma.PID(), &actor.MessageEnvelope{Message: msg})
			time.Sleep(time.Second)
			for i, m := range []*singleton.Manager{ma, mb} {
				[]*node{a, b}[i].mustAsk(m.PID(), i+1)
			}
		})
	}
}

// A node without the store is believed in nothing that would give it mail, or the lease: it answers
// markers that it has not seen, and invites to what it does not hold. A planned move goes as if it
// were not there.
func TestAHostilePeerTakesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b, x := c.node("a"), c.node("b"), c.node("x")
		for _, way := range [][2]string{{"a:1", "b:1"}, {"b:1", "a:1"}} {
			c.net.SetDelay(way[0], way[1], 20*time.Millisecond)
		}
		var log []string
		ma := a.keeping(&log)
		until(t, time.Second, "hosts", active(ma))
		mb := b.keeping(&log)
		until(t, time.Second, "knows the host", func() bool { return mb.Status().Host.ID == "a" })
		told := b.events()
		name, self := "singleton/x", &wire.Node{Address: "x:1", Incarnation: x.keeper.Owner().Incarnation}
		stop := make(chan struct{})
		var gone sync.WaitGroup
		gone.Go(func() {
			for n := uint64(0); ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				for _, m := range []*singleton.Manager{ma, mb} {
					for guess := range uint64(32) {
						x.system.Root.Send(m.PID(), &wire.MarkerAck{Name: name, From: self, Number: guess/8<<32 | guess%8, Token: 1 << 40})
					}
					x.system.Root.Send(m.PID(), &wire.Invite{Name: name, From: self, Number: n + 1})
				}
			}
		})
		sent := 0
		say := func(n int) {
			for range n {
				sent++
				b.system.Root.Send(mb.PID(), job{Sender: "b", Number: sent})
				time.Sleep(time.Millisecond)
			}
		}
		say(300)
		go func() { _ = ma.Stop(context.Background()) }()
		say(1000)
		require.True(t, active(mb)(), "%v", mb.Status())
		close(stop)
		gone.Wait()
		require.Len(t, log, 2)
		require.Contains(t, log[1], "on b")
		require.NotEqual(t, "started with 0 on b", log[1], "with its state")
		require.Empty(t, told.of(singleton.ColdStart))
		require.Zero(t, mb.Status().Unordered)
	})
}
