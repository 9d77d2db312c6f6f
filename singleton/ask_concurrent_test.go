package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/singleton"
)

func TestAskConcurrently(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		var asked askers
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if j, ok := ctx.Message().(job); ok {
				asked.note(ctx.Sender())
				return j.Number%4 == 0 // these are not answered
			}
			return false
		}
		ma, mb := a.hosts("scheduler"), b.run("scheduler")
		var wg sync.WaitGroup
		errs := make(chan error, 400)
		for i := range cap(errs) {
			m := []*singleton.Manager{ma, mb}[i%2]
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%3)*time.Second)
				defer cancel()
				d, err := singleton.Ask[done](ctx, m, job{Number: i})
				switch {
				case i%4 == 0 && !errors.Is(err, context.DeadlineExceeded):
					errs <- fmt.Errorf("job %d: %v, %v", i, d, err)
				case i%4 != 0 && (err != nil || d.Number != i):
					errs <- fmt.Errorf("job %d: %v, %v", i, d, err)
				}
			})
		}
		wg.Wait()
		close(errs)
		require.NoError(t, <-errs)
		asked.gone(t, 400, a.system)
		asked.gone(t, 400, b.system)
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
	echo := system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		if j, ok := ctx.Message().(*job); ok {
			ctx.Respond(j)
		}
	}))
	keeper, err := lease.NewKeeper(memory.New(), lease.Config{ID: "bench", TTL: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	m, err := singleton.Start(system, keeper, "bench", actor.PropsFromFunc(func(ctx actor.Context) {
		if j, ok := ctx.Message().(*job); ok {
			ctx.Respond(j)
		}
	}))
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		system.Root.Stop(echo)
		if err := errors.Join(m.Stop(context.Background()), keeper.Close(context.Background())); err != nil {
			b.Error(err)
		}
	}()
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
