package singleton_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
)

// seen is by which node a message was handled, and of which trace it was.
type seen struct {
	mu  sync.Mutex
	all map[string]string
	by  map[string]int
}

// watches is a child that notes the trace of each message, and needs three seconds for "slow".
func (s *seen) watches(n *node) *actor.Props {
	return actor.PropsFromFunc(func(c actor.Context) {
		text := ""
		switch m := c.Message().(type) {
		case *wrapperspb.StringValue:
			text = m.Value
		case job:
			text = m.Sender
		default:
			return
		}
		of := trace.SpanContextFromContext(hosting.TraceOf(context.Background(), c))
		s.mu.Lock()
		s.all[text] = of.TraceID().String() + " " + of.TraceState().String()
		s.by[n.id]++
		s.mu.Unlock()
		if c.Sender() != nil {
			c.Respond(done{Node: n.id})
		}
		if text == "slow" { // longer than it takes to ask a candidate again
			time.Sleep(3 * time.Second)
		}
	})
}

// A message has the trace of its sender wherever it is handled: here or over a link, as a Protocol
// Buffers message that travels plainly or in an envelope, asked or told, and after it was handed over
// to the next host with the backlog. The hand-over itself is two traces, linked.
func TestTracesTravelWithMessages(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		spans := tracetest.NewSpanRecorder()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		recorded := func(cfg *lease.Config) { cfg.TracerProvider = provider }
		s := &seen{all: map[string]string{}, by: map[string]int{}}
		team := newTeamOf(c, []*node{c.node("n0", recorded), c.node("n1", recorded)}, keeperOwner, func(n *node, leads singleton.Option) *singleton.Manager {
			return n.runProps("x", s.watches(n), leads, singleton.WithSettle(0))
		})
		team.lead(0)
		team.hosts(0)
		want := map[string]string{}
		traced := func(name string) context.Context {
			state, err := trace.ParseTraceState("vendor=" + name[:1])
			require.NoError(t, err)
			of := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, byte(len(want))}, SpanID: trace.SpanID{2},
				TraceFlags: trace.FlagsSampled, TraceState: state})
			want[name] = of.TraceID().String() + " " + state.String()
			return trace.ContextWithRemoteSpanContext(t.Context(), of)
		}
		for i, n := range team.ns {
			for form, msg := range map[string]func(string) any{
				"plain":    func(name string) any { return wrapperspb.String(name) },
				"enclosed": func(name string) any { return job{Sender: name} },
			} {
				name := fmt.Sprint("asked ", form, i)
				_, err := singleton.Ask[done](traced(name), team.ms[i], msg(name))
				require.NoError(t, err)
				name = fmt.Sprint("told ", form, i)
				n.system.Root.Send(team.ms[i].PID(), hosting.WithTrace(traced(name), msg(name)))
			}
		}
		n0 := team.ns[0].system.Root
		_, err := singleton.Ask[done](t.Context(), team.ms[0], wrapperspb.String("of no trace"))
		require.NoError(t, err)
		want["of no trace"], want["slow"] = trace.TraceID{}.String()+" ", trace.TraceID{}.String()+" "
		n0.Send(team.ms[0].PID(), wrapperspb.String("slow"))
		for i, n := range team.ns {
			for _, form := range []string{"plain", "enclosed"} {
				name := fmt.Sprint("moved ", form, i)
				msg := map[string]any{"plain": wrapperspb.String(name), "enclosed": job{Sender: name}}[form]
				n.system.Root.Send(team.ms[i].PID(), hosting.WithTrace(traced(name), msg))
			}
		}
		time.Sleep(10 * time.Millisecond)
		team.lead(1)
		team.hosts(1)
		time.Sleep(time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Equal(t, want, s.all)
		require.Equal(t, len(want), s.by["n0"]+s.by["n1"], "each once")
		require.GreaterOrEqual(t, s.by["n1"], 4, "the last came behind one that was being handled")

		var given, taken sdktrace.ReadOnlySpan
		for _, x := range spans.Ended() {
			switch x.Name() {
			case "holdfast.handover":
				given = x
			case "holdfast.takeover":
				taken = x
			}
		}
		require.False(t, given.Parent().IsValid() || taken.Parent().IsValid())
		require.Equal(t, []attribute.KeyValue{attribute.String("holdfast.lease", "singleton/x"), attribute.String("holdfast.peer", "n1")}, given.Attributes())
		require.Equal(t, given.SpanContext().SpanID(), taken.Links()[0].SpanContext.SpanID())
		require.Greater(t, given.EndTime().Sub(given.StartTime()), 900*time.Millisecond, "the child was told to stop when it was busy")
	})
}

// A hand-over is linked to the span of the caller of Move or Stop, if it has one.
func TestAHandOverIsLinkedToItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		spans := tracetest.NewSpanRecorder()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		recorded := func(cfg *lease.Config) { cfg.TracerProvider = provider }
		all := map[string]*singleton.Manager{}
		for _, id := range []string{"a", "b", "c"} {
			all[id] = c.node(id, recorded).run("x")
			time.Sleep(time.Second)
		}
		host := func() *singleton.Manager {
			time.Sleep(time.Second)
			return all[c.record("singleton/x").Owner.ID]
		}
		byMove, move := provider.Tracer("test").Start(t.Context(), "move")
		byStop, stop := provider.Tracer("test").Start(t.Context(), "stop")
		require.NoError(t, host().Move(byMove, ""))
		require.NoError(t, host().Stop(byStop))
		require.NoError(t, host().Move(t.Context(), ""))
		var links [][]trace.SpanID
		for _, x := range spans.Ended() {
			if x.Name() == "holdfast.handover" {
				to := []trace.SpanID{}
				for _, l := range x.Links() {
					to = append(to, l.SpanContext.SpanID())
				}
				links = append(links, to)
			}
		}
		require.Equal(t, [][]trace.SpanID{{move.SpanContext().SpanID()}, {stop.SpanContext().SpanID()}, {}}, links)
	})
}
