package meters_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/internal/meters"
	"github.com/holdfast-go/holdfast/internal/teller"
)

func TestInstruments(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	m := meters.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), "part", attribute.String("a", "1"))
	won := m.Counter("acquired", "By outcome.").With(attribute.String("outcome", "won"))
	held := m.UpDown("held", "Held.")
	set := m.Gauge("set", "Set.")
	took := m.Times("took", "Took.")
	n := int64(7)
	stop := m.Observe(m.ObservedUpDown("waiting", "Waiting.", func() int64 { return n }),
		m.ObservedCounter("lost", "Lost.", func() int64 { return 2 * n }))
	require.NoError(t, m.Err())
	won.Add(2)
	held.Add(3)
	held.Add(-1)
	set.Set(5)
	took.Record(1500 * time.Millisecond)

	read := func() map[string]string {
		var all metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &all))
		got := map[string]string{}
		for _, s := range all.ScopeMetrics {
			require.Equal(t, "github.com/holdfast-go/holdfast/part", s.Scope.Name)
			for _, x := range s.Metrics {
				switch d := x.Data.(type) {
				case metricdata.Sum[int64]:
					got[x.Name] = attributes(d.DataPoints[0].Attributes, d.DataPoints[0].Value)
				case metricdata.Gauge[int64]:
					got[x.Name] = attributes(d.DataPoints[0].Attributes, d.DataPoints[0].Value)
				case metricdata.Histogram[float64]:
					got[x.Name] = attributes(d.DataPoints[0].Attributes, int64(1000*d.DataPoints[0].Sum))
					require.Equal(t, "s", x.Unit)
					require.Len(t, d.DataPoints[0].Bounds, 16)
				}
			}
		}
		return got
	}
	require.Equal(t, map[string]string{
		"holdfast.part.acquired": "a=1 outcome=won 2", "holdfast.part.held": "a=1 2", "holdfast.part.set": "a=1 5",
		"holdfast.part.took": "a=1 1500", "holdfast.part.waiting": "a=1 7", "holdfast.part.lost": "a=1 14",
	}, read())
	stop()
	require.NotContains(t, read(), "holdfast.part.waiting")
}

func attributes(set attribute.Set, n int64) (text string) {
	for _, a := range set.ToSlice() {
		text += string(a.Key) + "=" + a.Value.String() + " "
	}
	return text + strconv.FormatInt(n, 10)
}

// rude is a MeterProvider that panics, or whose Meter does.
type rude struct {
	noop.MeterProvider
	meter bool
}

func (r rude) Meter(string, ...metric.MeterOption) metric.Meter {
	if r.meter {
		panic("no meter")
	}
	return rudeMeter{}
}

type rudeMeter struct{ noop.Meter }

func (rudeMeter) Int64Gauge(string, ...metric.Int64GaugeOption) (metric.Int64Gauge, error) {
	panic("no gauge")
}

func TestWhatPanicsIsAnError(t *testing.T) {
	for _, meter := range []bool{true, false} {
		m := meters.New(rude{meter: meter}, "part")
		m.Counter("a", "A.")
		m.Gauge("b", "B.")
		m.Times("c", "C.")
		m.Observe(m.ObservedUpDown("d", "D.", nil))
		require.ErrorContains(t, m.Err(), "the MeterProvider panicked: no ")
	}
}

// stuck is an instrument that does not return.
type stuck struct{ release chan struct{} }

func (s *stuck) Add(context.Context) { <-s.release }

func TestInstrumentsAreCalledAside(t *testing.T) {
	core, lines := observer.New(zap.WarnLevel)
	s := &stuck{make(chan struct{})}
	told := meters.Call(zap.New(core), s)
	for range 10_003 {
		told.Do(func(s *stuck) { s.Add(t.Context()) })
	}
	close(s.release)
	require.Eventually(t, func() bool {
		teller.Flush(told.Teller)
		return lines.FilterMessage("measurements were dropped: the meter is too slow, or panicked").Len() == 1
	}, 10*time.Second, time.Millisecond)
}
