package outlet_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/remoting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// with runs a test with a system whose subscriber does what it is told.
func with(t *testing.T, hear func(event any), test func(system *actor.ActorSystem, lines *observer.ObservedLogs)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * time.Second) // protoactor's log of dead letters ends a second later
		core, lines := observer.New(zap.ErrorLevel)
		system := actor.NewActorSystem(remoting.LogTo(zap.New(core)))
		system.EventStream.Subscribe(hear)
		test(system, lines)
		synctest.Wait()
	})
}

func gone() *actor.PID { return actor.NewPID("nonhost", "gone") }

// A subscriber that panics, calls back or takes its time hears all, in order, and no publisher
// waits for it.
func TestNoPublisherWaits(t *testing.T) {
	var got []any
	var out *outlet.Outlet
	with(t, func(e any) {
		time.Sleep(time.Second)
		switch got = append(got, e); e {
		case 1:
			panic("a bug")
		case 2:
			out.Publish("inner")
		}
	}, func(system *actor.ActorSystem, lines *observer.ObservedLogs) {
		out = outlet.Of(system)
		began := time.Now()
		for i := range 4 {
			out.Publish(i)
		}
		require.Zero(t, time.Since(began))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []any{0, 1, 2, 3, "inner"}, got)
		require.Equal(t, 1, lines.FilterMessageSnippet("panicked").Len())
	})
}

// What does not fit is dropped, counted and said once; and that is so again when all is published.
// Dead letters leave events their room.
func TestEventsBeyondTheBoundAreCounted(t *testing.T) {
	var events, letters atomic.Int64
	with(t, func(e any) {
		time.Sleep(2 * time.Millisecond)
		if _, ok := e.(*actor.DeadLetterEvent); ok {
			letters.Add(1)
		} else {
			events.Add(1)
		}
	}, func(system *actor.ActorSystem, lines *observer.ObservedLogs) {
		out := outlet.Of(system)
		reader := sdkmetric.NewManualReader()
		require.NoError(t, out.Measure(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
		for round := 1; round <= 2; round++ {
			for i := range 2 * outlet.Limit {
				out.DeadLetter(gone(), i)
			}
			out.Publish("event")
			time.Sleep(10 * time.Millisecond)
			require.EqualValues(t, round, events.Load(), "it comes before the dead letters that wait")
			time.Sleep(time.Minute)
			require.LessOrEqual(t, letters.Load(), int64(round*(outlet.Limit+1)))
			require.Equal(t, round, lines.FilterMessageSnippet("dead letters are dropped").Len())
			require.Equal(t, int64(round*2*outlet.Limit)-letters.Load(), counted(t, reader)["dead letters"])
		}
	})
}

// The bound in bytes keeps large dead letters from filling the memory; one that is larger passes.
func TestLargeDeadLetters(t *testing.T) {
	var letters int
	with(t, func(e any) { letters++; time.Sleep(time.Millisecond) }, func(system *actor.ActorSystem, _ *observer.ObservedLogs) {
		large := strings.Repeat("x", 100<<20)
		for range 10 {
			outlet.Of(system).DeadLetter(gone(), large)
			time.Sleep(time.Millisecond / 2)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.NotZero(t, letters)
		require.Less(t, letters, 10)
	})
}

// The last event of each key arrives, however many others there are; what it took the place of is
// counted.
func TestTheLatestOfAKeyAlwaysArrives(t *testing.T) {
	last := map[any]any{}
	var release chan struct{}
	type change struct{ group, n int }
	with(t, func(e any) {
		<-release
		if c, ok := e.(change); ok {
			last[c.group] = c.n
		}
	}, func(system *actor.ActorSystem, _ *observer.ObservedLogs) {
		release = make(chan struct{})
		out := outlet.Of(system)
		reader := sdkmetric.NewManualReader()
		require.NoError(t, out.Measure(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
		for range 2 * outlet.Limit {
			out.Publish("event")
		}
		for n := range 10 {
			for group := range 3 {
				out.Latest(group, change{group, n})
			}
		}
		close(release)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, map[any]any{0: 9, 1: 9, 2: 9}, last)
		require.GreaterOrEqual(t, counted(t, reader)["events"], int64(outlet.Limit+27-1))
	})
}

func counted(t *testing.T, reader *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	n := map[string]int64{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
				of, _ := p.Attributes.Value("of")
				n[of.AsString()] += p.Value
			}
		}
	}
	return n
}

// Who waits for an answer that dead letters give has it, also where those are dropped.
func TestADroppedDeadLetterIsAnswered(t *testing.T) {
	var release chan struct{}
	with(t, func(any) { <-release }, func(system *actor.ActorSystem, _ *observer.ObservedLogs) {
		release = make(chan struct{})
		defer close(release)
		out := outlet.Of(system)
		out.DeadLetter(gone(), "held up")
		synctest.Wait() // the subscriber has it
		for range outlet.Limit {
			out.DeadLetter(gone(), "full")
		}
		asks := actor.NewFuture(system, time.Second)
		out.DeadLetter(gone(), &actor.MessageEnvelope{Message: "question", Sender: asks.PID()})
		_, err := asks.Result()
		require.ErrorIs(t, err, actor.ErrDeadLetter)
		ended := make(chan *actor.Terminated, 1)
		watcher := system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			if m, ok := ctx.Message().(*actor.Terminated); ok {
				ended <- m
			}
		}))
		out.DeadSignal(gone(), &actor.Watch{Watcher: watcher})
		require.Equal(t, actor.TerminatedReason_NotFound, (<-ended).Why)
	})
}

// Who sends to an actor that has ended, and may hold a lock, does not wait for subscribers.
func TestTellingAnActorThatHasEnded(t *testing.T) {
	var got []any
	with(t, func(e any) {
		time.Sleep(time.Second)
		got = append(got, e.(*actor.DeadLetterEvent).Message)
	}, func(system *actor.ActorSystem, _ *observer.ObservedLogs) {
		began := time.Now()
		for i := range 2 {
			outlet.Tell(system, actor.NewPID(system.Address(), "gone"), i)
		}
		require.Zero(t, time.Since(began))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Equal(t, []any{0, 1}, got)
	})
}

// Dead letters are counted by reason, those of unknown ones with those that have none.
func TestCounts(t *testing.T) {
	with(t, func(any) {}, func(system *actor.ActorSystem, _ *observer.ObservedLogs) {
		out := outlet.Of(system)
		require.Empty(t, out.Counts())
		out.DeadLetter(gone(), "a")
		for _, reason := range []int32{4, 4, 9, 10, -1, 1 << 30} {
			out.Undeliverable(reason, gone(), "b")
		}
		require.Equal(t, map[string]int64{"unspecified": 4, "overflow": 2, "too new": 1}, out.Counts())
	})
}
