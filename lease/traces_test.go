package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// recorded is a node whose spans are recorded.
func recorded(t *testing.T, db *memory.Store) (*node, *tracetest.SpanRecorder, *sdktrace.TracerProvider) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	return start(t, db, "a", func(c *lease.Config) { c.TracerProvider = provider }), spans, provider
}

// A request to the store is shown under the operation that asked for it, and that under its caller's
// span. Renewals, which no caller waits for, begin none.
func TestSpans(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, spans, provider := recorded(t, db)
		b := start(t, db, "b")
		x, y := a.lease("x"), a.lease("y")
		b.hold("y")
		ctx, caller := provider.Tracer("test").Start(t.Context(), "caller")
		won, err := x.Acquire(ctx)
		require.NoError(t, err)
		require.True(t, won)
		token := int64(token(t, x))
		time.Sleep(2 * ttl) // renewed
		won, err = y.Acquire(ctx)
		require.NoError(t, err)
		require.False(t, won)
		require.NoError(t, x.Transfer(ctx, offerOf(t, b.lease("x"))))
		require.NoError(t, x.Release(ctx)) // nothing of it stands
		caller.End()

		names := map[string]string{} // by span
		for _, s := range spans.Ended() {
			names[s.SpanContext().SpanID().String()] = s.Name()
		}
		var told []string
		for _, s := range spans.Ended() {
			told = append(told, names[s.Parent().SpanID().String()]+" > "+s.Name())
			require.Equal(t, codes.Unset, s.Status().Code)
		}
		require.Equal(t, []string{
			"holdfast.lease.acquire > holdfast.store.open", "holdfast.lease.acquire > holdfast.store.acquire", "caller > holdfast.lease.acquire",
			"holdfast.lease.acquire > holdfast.store.acquire", "caller > holdfast.lease.acquire",
			"holdfast.lease.transfer > holdfast.store.transfer", "caller > holdfast.lease.transfer",
			"caller > holdfast.lease.release", " > caller",
		}, told)
		require.Equal(t, []attribute.KeyValue{attribute.String("holdfast.lease", "x"), attribute.String("holdfast.keeper", "a"),
			attribute.Int64("holdfast.token", token)}, spans.Ended()[2].Attributes())
		require.Contains(t, spans.Ended()[4].Attributes(), attribute.String("holdfast.holder", "b"))
		require.Equal(t, []attribute.KeyValue{attribute.String("holdfast.store", "memory"), attribute.Int("holdfast.names", 1)},
			spans.Ended()[1].Attributes())
	})
}

// An operation that fails says why in its span, and a store that panics ends the span of its request.
func TestSpansOfWhatFails(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, spans, _ := recorded(t, db)
		x := a.hold("x")
		require.NoError(t, x.Release(t.Context()))
		a.store.Partition()
		_, err := x.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrUnknown)
		last := spans.Ended()[len(spans.Ended())-1]
		require.Equal(t, "holdfast.lease.acquire", last.Name())
		require.Equal(t, sdktrace.Status{Code: codes.Error, Description: err.Error()}, last.Status())
		require.Equal(t, len(spans.Started()), len(spans.Ended()))
		require.True(t, len(spans.Ended()) > 5, "each attempt is one")
		a.store.Heal()
	})
}
