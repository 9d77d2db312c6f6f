package sharding_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

// Entities see the trace of who asked or told them, on any node. A move of a shard is two traces, of
// which the next host's is linked to the old one's, and that to the span of who drains or stops the node.
func TestTraces(t *testing.T) {
	bubble(t, func(c *cluster) {
		spans := tracetest.NewSpanRecorder()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		var mu sync.Mutex
		got, want := map[string]trace.TraceID{}, map[string]trace.TraceID{}
		props := actor.PropsFromFunc(func(ctx actor.Context) {
			if j, ok := jobOf(ctx.Message()); ok {
				mu.Lock()
				defer mu.Unlock()
				got[j.Sender] = trace.SpanContextFromContext(hosting.TraceOf(context.Background(), ctx)).TraceID()
				if ctx.Sender() != nil {
					ctx.Respond(done{})
				}
			}
		})
		c.change = append(c.change, func(cfg *lease.Config) { cfg.TracerProvider = provider })
		ns := c.hostingType("a b", sharding.Type{Name: "account", Shards: 4, Props: props})
		for i := range 8 {
			r := ns[i%2].region
			for _, how := range []string{"asked", "told", "told by its PID"} {
				name := fmt.Sprint(how, i)
				ctx, span := provider.Tracer("test").Start(c.t.Context(), name)
				want[name] = span.SpanContext().TraceID()
				switch how {
				case "asked":
					_, err := sharding.Ask[done](ctx, r, fmt.Sprint(i), job{name, 1})
					require.NoError(c.t, err)
				case "told":
					require.NoError(c.t, r.Tell(fmt.Sprint(i), hosting.WithTrace(ctx, job{name, 1})))
				default:
					pid, err := r.Ref(fmt.Sprint(i))
					require.NoError(c.t, err)
					ns[i%2].system.Root.Send(pid, hosting.WithTrace(ctx, job{name, 1}))
				}
			}
		}
		time.Sleep(time.Second)
		mu.Lock()
		require.Equal(c.t, want, got)
		mu.Unlock()

		before := len(spans.Ended()) // shards may have moved when b came
		ctx, drain := provider.Tracer("test").Start(c.t.Context(), "drain")
		require.NoError(c.t, ns[0].region.Drain(ctx))
		time.Sleep(time.Second)
		given, taken := map[trace.SpanID]bool{}, 0
		for i, x := range spans.Ended() {
			given[x.SpanContext().SpanID()] = x.Name() == "holdfast.handover"
			if i >= before && x.Name() == "holdfast.handover" {
				require.Equal(c.t, drain.SpanContext().SpanID(), x.Links()[0].SpanContext.SpanID())
			}
		}
		for _, x := range spans.Ended()[before:] {
			if x.Name() == "holdfast.takeover" {
				require.True(c.t, given[x.Links()[0].SpanContext.SpanID()])
				taken++
			}
		}
		require.Equal(c.t, 2, taken)

		// Two shards come back after Undrain, by no caller, two by one without a span, and two are given
		// back by the node that was drained first. Two go at the stop.
		before = len(spans.Ended())
		ns[0].region.Undrain()
		time.Sleep(time.Minute)
		require.NoError(c.t, ns[1].region.Drain(c.t.Context()))
		ns[1].region.Undrain()
		time.Sleep(time.Minute)
		ctx, stop := provider.Tracer("test").Start(c.t.Context(), "stop")
		require.NoError(c.t, ns[1].region.Stop(ctx))
		linked := map[int]int{}
		for _, x := range spans.Ended()[before:] {
			if x.Name() == "holdfast.handover" {
				linked[len(x.Links())]++
				require.True(c.t, len(x.Links()) == 0 || x.Links()[0].SpanContext.SpanID() == stop.SpanContext().SpanID())
			}
		}
		require.Equal(c.t, map[int]int{0: 6, 1: 2}, linked)
	})
}
