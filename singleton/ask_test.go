package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/asker"
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
	mail []actor.DeadLetterEvent
}

func (n *node) deadMail() *deadMail {
	d := &deadMail{}
	n.system.EventStream.Subscribe(func(e any) {
		if e, ok := e.(*actor.DeadLetterEvent); ok {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.mail = append(d.mail, *e)
		}
	})
	return d
}

func (d *deadMail) messages() (ms []any) {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.mail {
		ms = append(ms, e.Message)
	}
	return ms
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
		c.log.crashed(a)
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

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
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
	return asker.Ask[R](ctx, system, nil, func(e *actor.MessageEnvelope) { system.Root.Send(to, e) }, msg)
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

// A deadline may be as far off as can be: the question waits for a host, here and at the node
// that it is sent to.
func TestAnAskWithoutAnEnd(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		m := b.run("x", singleton.WithProxyOnly())
		time.Sleep(5 * time.Second)
		answers := make(chan error, 3)
		question := func(d time.Duration) {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			_, err := singleton.Ask[done](ctx, m, job{Number: 1})
			answers <- err
		}
		go question(math.MaxInt64)
		time.Sleep(time.Second)
		go question(10 * time.Second) // when it gives up, all that waits is looked at
		time.Sleep(20 * time.Second)
		require.Len(t, answers, 1)
		require.Error(t, <-answers)
		a.run("x")
		time.Sleep(20 * time.Second)
		go question(math.MaxInt64) // to a host that is there
		time.Sleep(time.Second)
		require.Len(t, answers, 2)
		require.NoError(t, <-answers)
		require.NoError(t, <-answers)
	})
}
