package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/singleton"
)

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
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = singleton.Ask[done](ctx, m, job{Number: 2})
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
		c.log.crashed(a)
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
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := singleton.Ask[done](ctx, m, job{"x", 1})
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
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
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
