package hosting

import (
	"context"
	"maps"

	"github.com/asynkron/protoactor-go/actor"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// w3c is how a trace travels in the headers of a message: traceparent and tracestate.
var w3c propagation.TraceContext

// WithTrace returns msg with the trace of ctx in its headers, traceparent and tracestate, as W3C Trace
// Context has them: for what has no answer (a PID of a singleton, sharding.Region.Tell), as singleton.Ask and
// sharding.Ask do so themselves. msg may be an *actor.MessageEnvelope, which is not changed. Without a
// trace in ctx it is returned as it is.
func WithTrace(ctx context.Context, msg any) any {
	if ctx == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return msg
	}
	header, msg, sender := propagation.MapCarrier{}, msg, (*actor.PID)(nil)
	if given, ok := msg.(*actor.MessageEnvelope); ok && given != nil {
		msg, sender = given.Message, given.Sender
		maps.Copy(header, given.Header)
	}
	w3c.Inject(ctx, header)
	return &actor.MessageEnvelope{Header: map[string]string(header), Message: msg, Sender: sender}
}

// TraceOf returns ctx with the trace that the message came with which c's actor handles, from another
// node too, and after the actor has moved; ctx as it is if it came with none.
func TraceOf(ctx context.Context, c actor.Context) context.Context {
	if header := c.MessageHeader(); header != nil && header.Length() > 0 {
		return w3c.Extract(ctx, propagation.MapCarrier(header.ToMap()))
	}
	return ctx
}
