package singleton_test

import (
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/singleton"
)

// read returns what was counted, by instrument; of a histogram the number and
// the sum in milliseconds.
func read(t *testing.T, r *sdkmetric.ManualReader) (counts map[string]int64, sums map[string]time.Duration) {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, r.Collect(t.Context(), &all))
	counts, sums = map[string]int64{}, map[string]time.Duration{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			require.NotEmpty(t, m.Description)
			name := m.Name[len("holdfast.singleton."):]
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					counts[name] += p.Value
				}
			case metricdata.Histogram[float64]:
				require.Equal(t, "s", m.Unit)
				for _, p := range data.DataPoints {
					counts[name] += int64(p.Count)
					sums[name] += time.Duration(p.Sum * float64(time.Second))
				}
			}
		}
	}
	return counts, sums
}

func TestMetricsCountWhatTheySay(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		ra, rb := sdkmetric.NewManualReader(), sdkmetric.NewManualReader()
		metered := func(r *sdkmetric.ManualReader) singleton.Option {
			p := sdkmetric.NewMeterProvider(sdkmetric.WithReader(r))
			c.atEnd(func() { _ = p.Shutdown(t.Context()) })
			return singleton.WithMeterProvider(p)
		}
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if j, ok := ctx.Message().(job); ok && j.Number == 13 {
				panic("a bad job")
			}
			return false
		}
		a, b := c.node("a"), c.node("b")
		ma := a.hosts("x", metered(ra), singleton.WithStop(func() any { return bye{} }, time.Second))
		mb := b.run("x", metered(rb), singleton.WithBuffer(2, hosting.DropNewest))
		a.system.Root.Send(ma.PID(), job{Number: 13})
		time.Sleep(5 * time.Second)
		counts, _ := read(t, ra)
		require.EqualValues(t, 1, counts["hosted"])
		require.EqualValues(t, 1, counts["restarts"])
		require.NoError(t, ma.Stop(t.Context()))
		until(t, time.Second, "hosts", active(mb))
		counts, sums := read(t, ra)
		require.Zero(t, counts["hosted"])
		require.EqualValues(t, 1, counts["handover"])
		require.Equal(t, time.Second, sums["handover"], "the child took until its deadline")

		c.log.crashed(b)
		b.crash()
		d := c.node("d")
		rd := sdkmetric.NewManualReader()
		md := d.run("x", metered(rd), singleton.WithBuffer(2, hosting.DropNewest))
		time.Sleep(time.Second)
		for i := range 5 {
			d.system.Root.Send(md.PID(), job{Number: i})
		}
		time.Sleep(time.Second)
		counts, _ = read(t, rd)
		until(t, 2*ttl, "hosts", active(md))
		after, sums := read(t, rd)
		require.LessOrEqual(t, counts["buffered"], int64(2))
		require.Zero(t, after["buffered"])
		require.EqualValues(t, 1, after["hosted"])
		require.Positive(t, sums["hostless"])
	})
}
