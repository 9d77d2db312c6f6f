package traces_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"

	"github.com/holdfast-go/holdfast/internal/traces"
)

// Nothing is begun, and nothing allocated, until a user sets the global provider; then it is used.
func TestTheGlobalProviderIsUsedOnceItIsSet(t *testing.T) {
	tracer := traces.New(nil, "part")
	require.True(t, tracer.Off())
	ctx := context.Background()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if !tracer.Off() || tracer.Under(ctx) {
			t.Error("on")
		}
	}))
	spans := tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	for _, x := range []*traces.Tracer{tracer, traces.New(nil, "part")} {
		require.False(t, x.Off())
		ctx, span := x.Begin(t.Context(), "s")
		require.True(t, x.Under(ctx))
		span.End(nil)
	}
	require.Len(t, spans.Ended(), 2)
	require.Equal(t, "github.com/holdfast-go/holdfast/part", spans.Ended()[0].InstrumentationScope().Name)
}

func TestLinks(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := traces.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)), "part")
	require.Empty(t, traces.Text(t.Context()))
	ctx, there := tracer.Begin(t.Context(), "there")
	text := traces.Text(ctx)
	for _, given := range []string{text, "", "00-rubbish"} {
		_, here := tracer.Linked(ctx, "here", given, time.Minute, attribute.Int("n", 1))
		here.End(nil)
		last := spans.Ended()[len(spans.Ended())-1]
		require.False(t, last.Parent().IsValid())
		require.Len(t, last.Attributes(), 1)
		require.Greater(t, time.Since(last.StartTime()), time.Minute)
		if given != text {
			require.Empty(t, last.Links())
			continue
		}
		require.Equal(t, there.SpanContext().SpanID(), last.Links()[0].SpanContext.SpanID())
		require.Equal(t, there.SpanContext().TraceID(), last.Links()[0].SpanContext.TraceID())
	}
}

// rude is a tracer that panics.
type rude struct{ embedded.TracerProvider }

func (rude) Tracer(string, ...trace.TracerOption) trace.Tracer { return nil }

func TestAPanicOfATracerIsContained(t *testing.T) {
	ctx, span := traces.New(rude{}, "part").Begin(t.Context(), "s")
	require.Equal(t, t.Context(), ctx)
	span.Set()
	span.End(errors.New("failed"))
}
