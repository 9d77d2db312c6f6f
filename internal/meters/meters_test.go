package meters_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast/internal/meters"
)

func TestInstruments(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	m := meters.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), "part", attribute.String("a", "1"))
	won := m.CounterBy("acquired", "By outcome.", "outcome", "won")["won"]
	held := m.UpDown("held", "Held.")
	set := m.Gauge("set", "Set.")
	took := m.Times("took", "Took.")
	n := int64(7)
	m.Counter("none", "None.")
	stop := m.Observe(m.ObservedUpDown("waiting", "Waiting.", func() int64 { return n }),
		m.ObservedCounter("lost", "Lost.", func() int64 { return 2 * n }),
		m.ObservedTime("off", "Off.", func(tell func(time.Duration)) {
			if n > 0 {
				tell(-1500 * time.Millisecond)
			}
		}))
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
				case metricdata.Gauge[float64]:
					got[x.Name] = attributes(d.DataPoints[0].Attributes, int64(1000*d.DataPoints[0].Value))
					require.Equal(t, "s", x.Unit)
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
		"holdfast.part.none": "a=1 0", "holdfast.part.off": "a=1 -1500",
	}, read())
	n = 0
	require.NotContains(t, read(), "holdfast.part.off")
	stop()
	require.NotContains(t, read(), "holdfast.part.waiting")
}

func attributes(set attribute.Set, n int64) (text string) {
	for _, a := range set.ToSlice() {
		text += string(a.Key) + "=" + a.Value.String() + " "
	}
	return text + strconv.FormatInt(n, 10)
}
