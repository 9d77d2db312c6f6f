package hosting_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/remoting"
)

type job struct{}

// An actor goes on in the trace of who told it: a plain one here, as one of a singleton's PID does.
func ExampleWithTrace() {
	tracer := sdktrace.NewTracerProvider().Tracer("example")
	system := actor.NewActorSystem(remoting.LogTo(nil))
	defer system.Shutdown()
	done := make(chan trace.TraceID)
	scheduler := system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if _, ok := c.Message().(job); !ok {
			return
		}
		ctx, span := tracer.Start(hosting.TraceOf(context.Background(), c), "run the job")
		defer span.End()
		done <- trace.SpanContextFromContext(ctx).TraceID()
	}))

	ctx, span := tracer.Start(context.Background(), "tell")
	system.Root.Send(scheduler, hosting.WithTrace(ctx, job{}))
	fmt.Println(<-done == span.SpanContext().TraceID())
	// Output: true
}

func TestWithTraceChangesNoEnvelope(t *testing.T) {
	ctx, _ := sdktrace.NewTracerProvider().Tracer("test").Start(t.Context(), "s")
	sender := actor.NewPID("a", "b")
	given := &actor.MessageEnvelope{Header: map[string]string{"k": "v"}, Message: job{}, Sender: sender}
	got := hosting.WithTrace(ctx, given).(*actor.MessageEnvelope)
	require.Equal(t, 1, given.Header.Length())
	require.Equal(t, "v", got.Header.Get("k"))
	require.NotEmpty(t, got.Header.Get("traceparent"))
	require.Equal(t, []any{job{}, sender}, []any{got.Message, got.Sender})
	require.Same(t, given, hosting.WithTrace(t.Context(), given), "there is no trace")
	require.Equal(t, job{}, hosting.WithTrace(t.Context(), job{}))
}
