package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/singleton"
)

// A node restarts under its address while another node still has an answer for its former process. All
// mail that the other node then sends to a singleton of the new process arrives.
func TestMailToANodeThatRestartedUnderItsAddress(t *testing.T) {
	store := memory.New()
	a := start(t, "a", store)
	const late = -1
	slow := actor.PropsFromFunc(func(ctx actor.Context) {
		if m, ok := ctx.Message().(Add); ok {
			if m.N == late {
				time.Sleep(200 * time.Millisecond)
			}
			ctx.Respond(Sum(m))
		}
	})
	answers := must(a.Singleton("answers", slow))(t)
	ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, answers, Add{0}) })

	address := freeAddress(t)
	at := func(c *node.Config) { c.Listen = address }
	b := start(t, "b", store, at)
	asks := must(b.Singleton("answers", slow, singleton.WithProxyOnly()))(t)
	ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, asks, Add{0}) })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	_, _ = singleton.Ask[Sum](ctx, asks, Add{late}) // its answer finds no node
	cancel()
	stop(t, b)
	time.Sleep(300 * time.Millisecond)

	b = start(t, "b", store, at)
	host := must(b.Singleton("sum", adders()))(t)
	ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, host, Add{0}) })
	sum := must(a.Singleton("sum", adders(), singleton.WithProxyOnly()))(t)
	for range 60 {
		a.System().Root.Send(sum.PID(), Add{1})
		time.Sleep(20 * time.Millisecond)
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.Equal(c, Sum{60}, ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, host, Add{0}) }))
	}, soon/2, 50*time.Millisecond, "%+v", sum.Status())
	stop(t, a)
	stop(t, b)
}
