package membership_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/membership"
)

// rude is a MeterProvider whose gauges fail.
type rude struct {
	noop.MeterProvider
	fail func()
}

type rudeMeter struct {
	noop.Meter
	rude
}

type rudeGauge struct {
	noop.Int64Gauge
	rude
}

func (r rude) Meter(string, ...metric.MeterOption) metric.Meter { return rudeMeter{rude: r} }

func (m rudeMeter) Int64Gauge(string, ...metric.Int64GaugeOption) (metric.Int64Gauge, error) {
	return rudeGauge{rude: m.rude}, nil
}

func (g rudeGauge) Record(context.Context, int64, ...metric.RecordOption) { g.fail() }

// What instruments panic with, or that they end the goroutine, breaks nothing off; what
// is left out is told of.
func TestInstrumentsThatFail(t *testing.T) {
	for _, fail := range []func(){runtime.Goexit, func() { panic("the exporter is full") }} {
		instrumentsFail(t, fail)
	}
}

func instrumentsFail(t *testing.T, fail func()) {
	bubble(t, func(t *testing.T, w *world) {
		core, seen := observer.New(zap.InfoLevel)
		a := w.member("a", membership.WithMeterProvider(rude{fail: fail}), membership.WithLogger(zap.New(core)))
		b := w.member("b")
		require.True(t, a.leads())
		require.Equal(t, "a", a.leaders.last().Leader.ID)
		require.NotEmpty(t, seen.FilterMessage("member joined").All())
		require.NotEmpty(t, seen.FilterMessageSnippet("dropped").All())
		a.leave()
		until(t, ttl, "b leads", b.leads)
	})
}

// asking is a core that calls f to know whether it takes a line.
type asking struct {
	zapcore.Core
	f func()
}

func (c asking) Enabled(l zapcore.Level) bool { c.f(); return c.Core.Enabled(l) }

func (c asking) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return c.Core.Check(e, ce)
}

// A logger that asks the group, and one that does not return, hold up nothing: where it
// writes, nor where it says which lines it takes.
func TestLoggersThatCallBackAndHang(t *testing.T) {
	for _, where := range []string{"Write", "Enabled"} {
		for _, hang := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s hangs %t", where, hang), func(t *testing.T) { loggerIsRude(t, where, hang) })
		}
	}
}

func loggerIsRude(t *testing.T, where string, hang bool) {
	bubble(t, func(t *testing.T, w *world) {
		var group atomic.Pointer[membership.Group]
		release := make(chan struct{})
		defer close(release)
		rude := func(at string) {
			switch g := group.Load(); {
			case g == nil || at != where:
			case hang:
				<-release
			default:
				g.Members()
				_ = g.Health(context.Background())
			}
		}
		core, _ := observer.New(zap.InfoLevel)
		log := zap.New(asking{core, func() { rude("Enabled") }}, zap.Hooks(func(zapcore.Entry) error { rude("Write"); return nil }))
		a := w.node("a").join(membership.WithLogger(log))
		group.Store(a.group)
		b := w.node("b").join()
		// A record that can't be read is told of.
		h, err := b.keeper.Lease("member/g/x/y")
		require.NoError(t, err)
		won, err := h.Acquire(t.Context())
		require.NoError(t, err)
		require.True(t, won)
		synctest.Wait()
		require.Equal(t, 1, a.group.Members().Unreadable)
		require.NoError(t, h.Release(t.Context()))
		// And so is another life of its ID.
		a.store.Partition()
		two, err := membership.Join(t.Context(), w.node("a", at("two:1")).keeper, "g")
		require.NoError(t, err)
		a.store.Heal()
		time.Sleep(ttl)
		require.ErrorIs(t, a.group.Superseded(), membership.ErrIDInUse)
		require.NoError(t, two.Leave(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), ttl)
		defer cancel()
		require.NoError(t, a.group.Leave(ctx))
	})
}

// mute is a MeterProvider that panics when it is asked for a Meter.
type mute struct{ noop.MeterProvider }

func (mute) Meter(string, ...metric.MeterOption) metric.Meter { panic("no exporter") }

func TestAMeterProviderThatPanicsIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.node("a")
		_, err := membership.Join(t.Context(), n.keeper, "g", membership.WithMeterProvider(mute{}))
		require.ErrorContains(t, err, "no exporter")
		n.join()
	})
}
