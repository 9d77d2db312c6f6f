package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/asker"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/singleton"
)

func ExampleAsk() {
	keeper, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a"})
	if err != nil {
		log.Fatal(err)
	}
	system := actor.NewActorSystem()
	scheduler, err := singleton.Start(system, keeper, "scheduler", actor.PropsFromFunc(func(c actor.Context) {
		if job, ok := c.Message().(string); ok {
			c.Respond(job + " is done")
		}
	}))
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	answer, err := singleton.Ask[string](ctx, scheduler, "backup")
	fmt.Println(answer, err)
	_, err = singleton.Ask[int](ctx, scheduler, "backup")
	fmt.Println(err)
	fmt.Println(singleton.StopAll(ctx, system), keeper.Close(ctx))
	// Output:
	// backup is done <nil>
	// singleton "scheduler": unexpected answer to string: string, not int
	// <nil> <nil>
}

// askers remembers who asked.
type askers struct {
	mu   sync.Mutex
	pids []*actor.PID
}

func (a *askers) note(pid *actor.PID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pids = append(a.pids, pid)
}

// gone asserts that n were noted, and that none is in the registry.
func (a *askers) gone(t *testing.T, n int, system *actor.ActorSystem) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Len(t, a.pids, n)
	for _, pid := range a.pids {
		require.NotNil(t, pid, "an asked message has a sender")
		_, ok := system.ProcessRegistry.GetLocal(pid.Id)
		require.False(t, ok, "%s is still registered", pid.Id)
	}
}

// deadMail collects the dead letters of a node.
type deadMail struct {
	mu   sync.Mutex
	mail []any
}

func (n *node) deadMail() *deadMail {
	d := &deadMail{}
	letters(n.system, func(e *actor.DeadLetterEvent) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.mail = append(d.mail, e.Message)
	})
	return d
}

func (d *deadMail) messages() []any {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mail
}

func TestAskIsAnsweredWhereverTheSingletonRuns(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		who := map[*node]*askers{a: {}, b: {}}
		var from *node
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if _, ok := ctx.Message().(job); ok {
				who[from].note(ctx.Sender())
			}
			return false
		}
		ma, mb := a.hosts("scheduler"), b.run("scheduler")
		for i := range 10 {
			from = a
			d, err := singleton.Ask[done](t.Context(), ma, job{Number: i})
			require.NoError(t, err)
			require.Equal(t, done{Number: i, Token: ma.Status().Token, Node: "a"}, d)
			from = b
			d, err = singleton.Ask[done](t.Context(), mb, job{Number: i})
			require.NoError(t, err)
			require.Equal(t, "a", d.Node, "from a node that does not host")
		}
		who[a].gone(t, 10, a.system)
		who[b].gone(t, 10, b.system)

		// The next host answers. What was on its way to the one that died is lost, so
		// ask again.
		from = b
		a.crash()
		var d done
		err := errors.New("not asked")
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			d, err = singleton.Ask[done](ctx, mb, job{Number: 100})
			cancel()
			if err == nil {
				break
			}
		}
		require.NoError(t, err)
		require.Equal(t, "b", d.Node)
	})
}

func TestAskWaitsForAHostWithoutADeadline(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		a.store.Partition()
		m := a.run("scheduler")
		time.AfterFunc(time.Hour, a.store.Heal)
		began := time.Now()
		d, err := singleton.Ask[done](context.Background(), m, job{Number: 7})
		require.NoError(t, err)
		require.Equal(t, 7, d.Number)
		require.GreaterOrEqual(t, time.Since(began), time.Hour)
	})
}

func TestAskEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		var asked askers
		dead := a.deadMail()
		answer := make(chan struct{})
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			j, ok := ctx.Message().(job)
			if !ok {
				return false
			}
			asked.note(ctx.Sender())
			if j.Number == 3 {
				sender := ctx.Sender()
				go func() { <-answer; a.system.Root.Send(sender, done{Number: 3}) }()
			}
			return true
		}
		m := a.run("scheduler")

		ctx := contextFor(time.Second)
		began := time.Now()
		_, err := singleton.Ask[done](ctx, m, job{Number: 1})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, `singleton "scheduler": no answer to singleton_test.job: context deadline exceeded`)
		require.Equal(t, time.Second, time.Since(began))
		asked.gone(t, 1, a.system)

		_, err = singleton.Ask[done](ctx, m, job{Number: 2})
		require.ErrorIs(t, err, context.DeadlineExceeded, "with a context that is done it is not even sent")
		synctest.Wait()
		asked.gone(t, 1, a.system)

		reason := errors.New("the client hung up")
		ctx2, cancel2 := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel2(reason) })
		_, err = singleton.Ask[done](ctx2, m, job{Number: 3})
		require.ErrorIs(t, err, reason, "the cause")
		asked.gone(t, 2, a.system)

		require.Empty(t, dead.messages())
		close(answer) // by the PID as it was received, which remembers the process
		require.Equal(t, []any{done{Number: 3}}, dead.messages(), "an answer that comes too late is a dead letter")
	})
}

func TestAskTakesOneAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		for _, asks := range []*node{a, b} {
			c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
				if j, ok := ctx.Message().(job); ok {
					for i := range 3 {
						ctx.Respond(done{Number: 10*j.Number + i})
					}
					return true
				}
				return false
			}
			m := asks.run("scheduler")
			dead := asks.deadMail()
			d, err := singleton.Ask[done](t.Context(), m, job{Number: 4})
			require.NoError(t, err)
			require.Equal(t, 40, d.Number, "the first")
			require.Equal(t, []any{done{Number: 41}, done{Number: 42}}, dead.messages(), "the others are dead letters")
		}
	})
}

// askPID asks any actor: what Ask has in common with asking an entity.
func askPID[R any](ctx context.Context, system *actor.ActorSystem, to *actor.PID, msg any) (R, error) {
	return asker.Ask[R](ctx, system, nil, func(e *actor.MessageEnvelope) { system.Root.Send(to, e) }, msg, "actor", to.Id, func() string { return "" })
}

func TestAskReachesOtherNodes(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		echo, err := b.system.Root.SpawnNamed(actor.PropsFromFunc(func(ctx actor.Context) {
			if m, ok := ctx.Message().(*wrapperspb.StringValue); ok {
				ctx.Respond(wrapperspb.String(m.GetValue() + ctx.MessageHeader().Get("tail")))
			}
		}), "echo")
		require.NoError(t, err)
		c.atEnd(func() { b.system.Root.Stop(echo) })
		to := actor.NewPID(b.system.Address(), "echo")
		envelope := &actor.MessageEnvelope{Message: wrapperspb.String("he"), Sender: to}
		envelope.SetHeader("tail", "llo")
		s, err := askPID[*wrapperspb.StringValue](t.Context(), a.system, to, envelope)
		require.NoError(t, err)
		require.Equal(t, "hello", s.GetValue(), "headers are sent")
		require.Same(t, to, envelope.Sender, "the caller's envelope is left alone")
		_, err = askPID[done](t.Context(), a.system, to, job{})
		require.ErrorIs(t, err, hosting.ErrUndeliverable, "remote takes no plain Go value")
	})
}

func TestAskKeepsHeadersToTheSingleton(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if _, ok := ctx.Message().(job); ok {
				ctx.Respond(done{Node: ctx.MessageHeader().Get("trace")})
				return true
			}
			return false
		}
		until(t, time.Second, "hosts", active(a.run("scheduler")))
		e := &actor.MessageEnvelope{Message: job{}}
		e.SetHeader("trace", "t1")
		d, err := singleton.Ask[done](t.Context(), b.run("scheduler"), e)
		require.NoError(t, err)
		require.Equal(t, "t1", d.Node)
	})
}

func TestAskerCannotBeWatchedNorStopped(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		gone := make(chan string, 1)
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			switch msg := ctx.Message().(type) {
			case job:
				sender := ctx.Sender()
				ctx.Watch(sender)
				ctx.Stop(sender)
				time.AfterFunc(time.Second, func() { a.system.Root.Send(sender, done{Number: 1}) })
				return true
			case *actor.Terminated:
				gone <- msg.Why.String()
			}
			return false
		}
		m := a.run("scheduler")
		d, err := singleton.Ask[done](t.Context(), m, job{})
		require.NoError(t, err)
		require.Equal(t, 1, d.Number, "the one answer")
		require.Equal(t, actor.TerminatedReason_NotFound.String(), <-gone, "who watches is told at once")
	})
}

// A late answer to a question of an earlier life at the same address is nobody's: no
// two lives give a question the same name.
func TestNoTwoLivesNameAQuestionAlike(t *testing.T) {
	seen := map[string]bool{}
	for range 2 {
		system := actor.NewActorSystem(remoting.LogTo(nil))
		who := system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
			if _, ok := c.Message().(string); ok {
				c.Respond(c.Sender().Id)
			}
		}))
		name, err := askPID[string](t.Context(), system, who, "who asks?")
		require.NoError(t, err)
		require.False(t, seen[name], name)
		seen[name] = true
		require.NoError(t, system.Root.StopFuture(who).Wait())
	}
}

// failure is an error that travels.
type failure struct{ Code int }

func (f failure) Error() string { return fmt.Sprintf("failure %d", f.Code) }

func TestAskJudgesTheAnswersType(t *testing.T) {
	system := actor.NewActorSystem(remoting.LogTo(nil))
	echo := system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch msg := ctx.Message().(type) {
		case func() any:
			ctx.Respond(msg())
		}
	}))
	answers := func(v any) func() any { return func() any { return v } }
	ctx := t.Context()

	d, err := askPID[done](ctx, system, echo, answers(done{Number: 1}))
	require.NoError(t, err)
	require.Equal(t, done{Number: 1}, d)
	pd, err := askPID[*done](ctx, system, echo, answers(&done{Number: 2}))
	require.NoError(t, err)
	require.Equal(t, 2, pd.Number)
	s, err := askPID[fmt.Stringer](ctx, system, echo, answers(time.Second))
	require.NoError(t, err, "an interface that the answer implements")
	require.Equal(t, "1s", s.String())
	v, err := askPID[any](ctx, system, echo, answers("text"))
	require.NoError(t, err)
	require.Equal(t, "text", v)

	_, err = askPID[done](ctx, system, echo, answers(&done{}))
	require.ErrorIs(t, err, hosting.ErrUnexpectedAnswer)
	require.ErrorContains(t, err, "unexpected answer to func() interface {}: *singleton_test.done, not singleton_test.done")
	_, err = askPID[fmt.Stringer](ctx, system, echo, answers(nil))
	require.ErrorIs(t, err, hosting.ErrUnexpectedAnswer)
	require.ErrorContains(t, err, "<nil>, not fmt.Stringer")

	// An error is returned as one, unless it was asked for.
	zero, err := askPID[int](ctx, system, echo, answers(failure{5}))
	require.ErrorIs(t, err, failure{5})
	require.NotErrorIs(t, err, hosting.ErrUnexpectedAnswer)
	require.Zero(t, zero)
	f, err := askPID[failure](ctx, system, echo, answers(failure{6}))
	require.NoError(t, err)
	require.Equal(t, failure{6}, f)
	e, err := askPID[error](ctx, system, echo, answers(failure{7}))
	require.NoError(t, err)
	require.Equal(t, failure{7}, e)

	// Word that it was not delivered is no answer, whatever was asked for.
	for _, word := range []any{&wire.Nack{}, &actor.DeadLetterResponse{}} {
		_, err = askPID[any](ctx, system, echo, answers(word))
		require.ErrorIs(t, err, hosting.ErrUndeliverable)
	}
	_, err = askPID[*wire.Nack](ctx, system, echo, answers(&wire.Nack{}))
	require.ErrorIs(t, err, hosting.ErrUndeliverable)

	// protoactor's own answers are taken, too.
	touched, err := askPID[*actor.Touched](ctx, system, echo, &actor.Touch{})
	require.NoError(t, err)
	require.Equal(t, echo.Id, touched.Who.Id)
	require.NoError(t, system.Root.StopFuture(echo).Wait())
}

func TestAskIsAnsweredWithAnErrorFromAnotherNode(t *testing.T) {
	require.NoError(t, remoting.Register[failure]("test.failure"))
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			j, ok := ctx.Message().(job)
			switch {
			case ok && j.Number == 1:
				ctx.Respond(failure{9})
			case ok:
				ctx.Respond(errors.New("of a type that does not travel"))
			}
			return ok
		}
		until(t, time.Second, "hosts", active(a.run("scheduler")))
		m := b.run("scheduler")
		_, err := singleton.Ask[done](t.Context(), m, job{Number: 1})
		require.ErrorIs(t, err, failure{9})
		require.EqualError(t, err, `singleton "scheduler": answered singleton_test.job: failure 9`)
		dead := a.deadLetters()
		_, err = singleton.Ask[done](contextFor(time.Second), m, job{Number: 2})
		require.ErrorIs(t, err, hosting.ErrUndeliverable, "at once, and not when its time is over")
		require.ErrorContains(t, err, "unknown type, sent as \"*errors.errorString\": the answer: on node a:1: *errors.errorString is not registered: give it to node.Types, or call remoting.Register[")
		synctest.Wait()
		require.EqualValues(t, 1, dead.Load(), "it is a dead letter where it was sent")
	})
}

func TestAskNamesTheUndeliveredMessage(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		a.hosts("scheduler", singleton.WithBuffer(1, hosting.DropNewest))
		mb := b.run("scheduler")
		require.Equal(t, "a", b.mustAsk(mb.PID(), 1).Node)

		// Of a type that does not travel.
		type unknown struct{ A int }
		_, err := singleton.Ask[done](t.Context(), mb, unknown{1})
		require.ErrorIs(t, err, hosting.ErrUndeliverable)
		var u *hosting.UndeliverableError
		require.ErrorAs(t, err, &u)
		require.Equal(t, "singleton_test.unknown", u.Type)
		require.Equal(t, hosting.ReasonUnknownType, u.Notice.Reason)
		require.ErrorContains(t, err, `singleton "scheduler": message undeliverable: singleton_test.unknown: unknown type`)
		require.ErrorContains(t, err, u.Notice.Detail)
		require.ErrorContains(t, err, "on node b:1: singleton_test.unknown is not registered: give it to node.Types, or call remoting.Register[singleton_test.unknown](")
		require.Equal(t, 1, strings.Count(err.Error(), "unknown type")+strings.Count(err.Error(), "unknown message type"), "said once: %v", err)

		// Too large.
		_, err = singleton.Ask[done](t.Context(), mb, wrapperspb.String(strings.Repeat("x", wire.PayloadLimit(b.system)+1)))
		require.ErrorAs(t, err, &u)
		require.Equal(t, hosting.ReasonTooLarge, u.Notice.Reason)
		require.ErrorContains(t, err, `*wrapperspb.StringValue: too large, sent as "google.protobuf.StringValue": `)

		// There is no room where there is no host.
		a.crash()
		b.store.Partition()
		time.Sleep(2 * ttl)
		full := b.run("other", singleton.WithBuffer(1, hosting.DropNewest))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first := make(chan error, 1)
		go func() {
			_, err := singleton.Ask[done](ctx, full, job{})
			first <- err
		}()
		synctest.Wait()
		_, err = singleton.Ask[done](t.Context(), full, job{})
		require.ErrorIs(t, err, hosting.ErrUndeliverable)
		cancel()
		require.ErrorIs(t, <-first, context.Canceled)
	})
}

func TestAskOfAnActorThatHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		m := a.run("scheduler")
		require.NoError(t, m.Stop(t.Context()))
		_, err := singleton.Ask[done](t.Context(), m, job{})
		require.ErrorIs(t, err, hosting.ErrUndeliverable)
		var u *hosting.UndeliverableError
		require.ErrorAs(t, err, &u)
		require.Nil(t, u.Notice)
		require.EqualError(t, err, `singleton "scheduler": message undeliverable: singleton_test.job went to the dead letters`)

		_, err = askPID[done](t.Context(), a.system, actor.NewPID(a.system.Address(), "nobody"), job{})
		require.ErrorIs(t, err, hosting.ErrUndeliverable)
	})
}

func TestAskRefusesBadInput(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		m := a.run("scheduler")
		until(t, time.Second, "hosts", active(m))
		for _, bad := range []any{nil, (*actor.MessageEnvelope)(nil), &actor.MessageEnvelope{}, &actor.PoisonPill{},
			&actor.Stop{}, &actor.Started{}, &actor.Stopping{}, &actor.SuspendMailbox{}, &actor.Terminated{},
			&actor.MessageEnvelope{Message: &actor.PoisonPill{}}} {
			_, err := singleton.Ask[done](t.Context(), m, bad)
			require.ErrorIs(t, err, lease.ErrInvalid, "%T", bad)
			require.ErrorContains(t, err, "message: ")
		}
		_, err := singleton.Ask[done](t.Context(), nil, job{})
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, "manager")
		require.True(t, active(m)(), "nothing came of that")
	})
}

// Who asked in vain is told what stood in the way.
func TestAskSaysWhyItFailed(t *testing.T) {
	ask := func(m *singleton.Manager) string {
		_, err := singleton.Ask[done](contextFor(5*time.Second), m, job{"x", 1})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return err.Error()
	}
	bubble(t, func(t *testing.T, c *cluster) {
		p := c.node("p")
		mp := p.run("x", singleton.WithProxyOnly())
		p.system.Root.Send(mp.PID(), job{"p", 9})
		time.Sleep(10 * time.Second)
		require.Regexp(t, `\(no host has been known for 15s, [12] messages wait here\)$`, ask(mp))
	})
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		a.store.Partition()
		ma := a.run("x")
		time.Sleep(time.Minute)
		text := ask(ma)
		require.Contains(t, text, "no host has been known for 1m5s")
		require.Contains(t, text, "the store: ")
		require.Contains(t, text, "injected store fault")
		a.store.Heal()
		a.mustAsk(ma.PID(), 2)
	})
}

// Who has asked over a link that breaks hears of it at once.
func TestAskFailsWhenItsLinkBreaks(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, p := c.node("a"), c.node("p")
		ma := a.run("x")
		until(t, time.Second, "hosts", active(ma))
		mp := p.run("x", singleton.WithProxyOnly())
		p.mustAsk(mp.PID(), 1)
		var mute atomic.Bool
		mute.Store(true)
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			_, is := ctx.Message().(job)
			return is && mute.Load()
		}
		ask := func() (time.Duration, error) {
			ctx := contextFor(time.Minute)
			began := time.Now()
			_, err := singleton.Ask[done](ctx, mp, job{"x", 2})
			return time.Since(began), err
		}
		go func() { time.Sleep(2 * time.Second); c.net.Cut("a:1", "p:1") }()
		took, err := ask()
		require.ErrorIs(t, err, hosting.ErrUnconfirmed)
		require.NotErrorIs(t, err, hosting.ErrUndeliverable)
		require.ErrorContains(t, err, "the link to the host at a:1 broke 0s ago")
		require.Equal(t, 2*time.Second, took)
		mute.Store(false)
		go func() { time.Sleep(2 * time.Second); c.net.Heal("a:1", "p:1") }()
		_, err = ask()
		require.NoError(t, err, "what has not been sent waits for the link")
	})
}

// A break of the link to a former host is none of who waits for the present one.
func TestAskOutlivesTheLinkToAFormerHost(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b, p := c.node("a"), c.node("b"), c.node("p")
		ma, mb := a.hosts("x"), b.run("x")
		mp := p.run("x", singleton.WithProxyOnly())
		p.mustAsk(mp.PID(), 1)
		require.NoError(t, ma.Stop(t.Context()))
		until(t, time.Second, "hosts", active(mb))
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if _, is := ctx.Message().(job); is {
				time.Sleep(3 * time.Second)
			}
			return false
		}
		go func() { time.Sleep(time.Second); c.net.Cut("a:1", "p:1") }()
		_, err := singleton.Ask[done](t.Context(), mp, job{"x", 2})
		require.NoError(t, err)
	})
}

// TestAskRacesItsAnswer ends the context as the answer comes: one of both is
// returned, and an answer that is not is a dead letter.
func TestAskRacesItsAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		dead := a.deadLetters()
		echo := a.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			if cancel, ok := ctx.Message().(context.CancelFunc); ok {
				go cancel()
				ctx.Respond(done{})
			}
		}))
		c.atEnd(func() { a.system.Root.Stop(echo) })
		// This one does both before AskPID even begins to wait.
		prompt, ok := a.system.ProcessRegistry.Add(promptly{a.system}, "prompt")
		require.True(t, ok)
		c.atEnd(func() { a.system.ProcessRegistry.Remove(prompt) })
		const n = 4000
		answered := 0
		for i := range n {
			ctx, cancel := context.WithCancel(t.Context())
			_, err := askPID[done](ctx, a.system, []*actor.PID{echo, prompt}[i%2], cancel)
			cancel()
			if err == nil {
				answered++
			} else {
				require.ErrorIs(t, err, context.Canceled)
			}
		}
		synctest.Wait()
		require.EqualValues(t, n, answered+int(dead.Load()))
	})
}

// promptly is a process that answers on the asker's goroutine, and ends its context.
type promptly struct{ system *actor.ActorSystem }

func (p promptly) SendUserMessage(_ *actor.PID, message any) {
	_, msg, sender := actor.UnwrapEnvelope(message)
	msg.(context.CancelFunc)()
	p.system.Root.Send(sender, done{})
}
func (promptly) SendSystemMessage(*actor.PID, any) {}
func (promptly) Stop(*actor.PID)                   {}

func BenchmarkAsk(b *testing.B) {
	system := actor.NewActorSystem(remoting.LogTo(nil))
	props := actor.PropsFromFunc(func(ctx actor.Context) {
		if j, ok := ctx.Message().(*job); ok {
			ctx.Respond(j)
		}
	})
	echo := system.Root.Spawn(props)
	m := runs(b, system, memory.New(), "bench", "", props)
	b.Cleanup(func() { system.Root.Stop(echo) })
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	j := &job{}
	for _, way := range []struct {
		name string
		ask  func() error
	}{
		{"actor/RequestFuture", func() error { return system.Root.RequestFuture(echo, j, time.Hour).Wait() }},
		{"actor/AskPID", func() error { _, err := askPID[*job](ctx, system, echo, j); return err }},
		{"singleton/RequestFuture", func() error { return system.Root.RequestFuture(m.PID(), j, time.Hour).Wait() }},
		{"singleton/Ask", func() error { _, err := singleton.Ask[*job](ctx, m, j); return err }},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := way.ask(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A sender middleware panics while a question is sent to the host, for which it may have been
// sent, or not: who asked is told so, and it is counted.
func TestAskFailsIfItsSendPanics(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, p := c.node("a"), c.node("p")
		a.hosts("x")
		mp := p.run("x", singleton.WithProxyOnly())
		p.mustAsk(mp.PID(), 1)
		panics := true
		p.system.Root.WithSenderMiddleware(func(next actor.SenderFunc) actor.SenderFunc {
			return func(c actor.SenderContext, to *actor.PID, e *actor.MessageEnvelope) {
				if w, ok := e.Message.(*wire.Envelope); ok && panics && w.Name == "singleton/x" {
					panics = false
					panic("a middleware's bug")
				}
				next(c, to, e)
			}
		})
		_, err := singleton.Ask[done](context.Background(), mp, job{"x", 2})
		require.ErrorIs(t, err, hosting.ErrUnconfirmed)
		require.EqualValues(t, 1, mp.Status().Unconfirmed)
		p.mustAsk(mp.PID(), 3)
	})
}
