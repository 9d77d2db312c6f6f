package membership_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/membership"
)

func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		reader := sdkmetric.NewManualReader()
		provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		defer func() { _ = provider.Shutdown(context.Background()) }()
		read := func() map[string]int64 {
			synctest.Wait()
			var all metricdata.ResourceMetrics
			require.NoError(t, reader.Collect(context.Background(), &all))
			got := map[string]int64{}
			point := func(name string, p metricdata.DataPoint[int64]) {
				keeper, _ := p.Attributes.Value("holdfast.keeper")
				group, _ := p.Attributes.Value("holdfast.group")
				require.Equal(t, "a g", keeper.AsString()+" "+group.AsString())
				got[name[len("holdfast.membership."):]] = p.Value
			}
			for _, scope := range all.ScopeMetrics {
				for _, m := range scope.Metrics {
					require.NotEmpty(t, m.Description)
					switch data := m.Data.(type) {
					case metricdata.Sum[int64]:
						point(m.Name, data.DataPoints[0])
					case metricdata.Gauge[int64]:
						point(m.Name, data.DataPoints[0])
					}
				}
			}
			return got
		}
		a := w.member("a", membership.WithMeterProvider(provider))
		w.node("b").join()
		require.Equal(t, map[string]int64{"members": 2, "leading": 1, "leader.changes": 1}, read())

		a.store.Partition()
		time.Sleep(2 * ttl)
		require.Equal(t, map[string]int64{"members": 1, "leading": 0, "losses": 1, "leader.changes": 2}, read())
		a.heal()
		until(t, ttl, "it is back", a.leads)
		require.Equal(t, map[string]int64{"members": 2, "leading": 1, "losses": 1, "leader.changes": 3}, read())
	})
}

// One line for each transition, and for what can't be read.
func TestLog(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		core, logs := observer.New(zap.InfoLevel)
		a := w.member("a", membership.WithLogger(zap.New(core)))
		b := w.node("b").join()
		b.announce()
		b.leave()
		h := must(b.keeper.Lease("member/g/x/y"))(t)
		won := must(h.Acquire(t.Context()))(t)
		require.True(t, won)
		synctest.Wait()
		require.Equal(t, 1, a.group.Members().Unreadable)
		require.Equal(t, "a*", a.sees())
		require.NoError(t, h.Close(t.Context()))
		synctest.Wait()
		require.Zero(t, a.group.Members().Unreadable)
		a.store.Partition()
		time.Sleep(15 * ttl)
		a.heal()
		until(t, ttl, "it is back", a.leads)
		w.node("a").join()
		until(t, 2*time.Second, "the later counts", func() bool { return a.sees() == "a" })
		a.leave()

		lines := map[string]int{}
		for _, l := range logs.All() {
			lines[l.Message]++
			require.Equal(t, "g", l.ContextMap()["group"])
			require.Equal(t, "a", l.ContextMap()["node"])
		}
		for line, count := range map[string]int{
			"member joined": 4, "member left": 3, "member is leaving": 1, "membership lost": 1, "leaving": 1,
			"a record of the group can't be read, left alone":                1,
			"not listed any more: a later incarnation of this ID has joined": 1,
		} {
			require.Equal(t, count, lines[line], "%s: %v", line, lines)
		}
		require.Positive(t, lines["leader changed"])
	})
}
