// Package traces begins spans, by OpenTelemetry's API alone.
//
//	t := traces.New(provider, "lease") // nil: the global provider
//	if !t.Off() {
//		ctx, span = t.Begin(ctx, "holdfast.lease.acquire", trace.WithAttributes(…))
//		defer func() { span.End(err) }()
//	}
//
// Tracers are users' code: call this package under no lock. Where no provider is set Off says so,
// without an allocation, and nothing else need be called.
package traces

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

const module = "github.com/holdfast-go/holdfast/"

// Tracer begins spans of one part of a node.
type Tracer struct {
	tracer trace.Tracer
	unset  trace.TracerProvider // the global one, which no one has set; nil: the user's
}

// unsetType is what the global provider is until a user sets one. It passes spans on to that then.
const unsetType = "*global.tracerProvider"

// New returns a Tracer for a package of this module.
func New(p trace.TracerProvider, part string) *Tracer {
	t := &Tracer{}
	if p == nil {
		if p = otel.GetTracerProvider(); fmt.Sprintf("%T", p) == unsetType {
			t.unset = p
		}
	}
	t.tracer = p.Tracer(module + part)
	return t
}

// Off reports whether there is no provider that would get a span.
func (t *Tracer) Off() bool { return t.unset != nil && otel.GetTracerProvider() == t.unset }

// Under reports whether ctx is of a span that a request could be shown under.
func (t *Tracer) Under(ctx context.Context) bool {
	return trace.SpanContextFromContext(ctx).IsValid() && !t.Off()
}

// Span is one that was begun. The zero Span is none, and its methods do nothing.
type Span struct{ trace.Span }

// Begin begins a span, and returns ctx with it.
func (t *Tracer) Begin(ctx context.Context, name string, opts ...trace.SpanStartOption) (within context.Context, s Span) {
	within = ctx
	_ = boundary.Contained(func() { within, s.Span = t.tracer.Start(ctx, name, opts...) })
	return within, s
}

// Set adds attributes.
func (s Span) Set(attrs ...attribute.KeyValue) {
	if s.Span != nil {
		_ = boundary.Contained(func() { s.SetAttributes(attrs...) })
	}
}

// End ends the span, with an error if there is one.
func (s Span) End(err error) {
	if s.Span == nil {
		return
	}
	_ = boundary.Contained(func() {
		if err != nil {
			s.SetStatus(codes.Error, err.Error())
		}
		s.Span.End()
	})
}

// w3c is the format of a trace's context: W3C Trace Context.
var w3c propagation.TraceContext

// Text is the trace of ctx for a message between nodes; empty: none. Linked takes it.
func Text(ctx context.Context) string {
	c := propagation.MapCarrier{}
	w3c.Inject(ctx, c)
	return c.Get("traceparent")
}

// Linked begins a trace of its own, that time ago, which is linked to another that is given as Text;
// of what is no such text, to none. It is for what has waited long, or goes on on another node.
func (t *Tracer) Linked(ctx context.Context, name, text string, ago time.Duration, attrs ...attribute.KeyValue) (context.Context, Span) {
	if t.Off() {
		return ctx, Span{}
	}
	opts := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithTimestamp(time.Now().Add(-ago)), trace.WithAttributes(attrs...)}
	of := trace.SpanContextFromContext(w3c.Extract(context.Background(), propagation.MapCarrier{"traceparent": text}))
	if of.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: of}))
	}
	return t.Begin(ctx, name, opts...)
}
