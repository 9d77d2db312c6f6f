package doccheck

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/partition"
)

// instruments notes what is asked of a MeterProvider: kind and description, by name.
type instruments struct {
	noop.Meter
	mu  sync.Mutex
	all map[string]string
}

// provider gives it to all who ask.
type provider struct {
	noop.MeterProvider
	instruments *instruments
}

func (p provider) Meter(string, ...metric.MeterOption) metric.Meter { return p.instruments }

func (i *instruments) note(name, kind, unit, description string) {
	if unit != "" {
		kind += ", " + unit
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all[name] = kind + " | " + description
}

func (i *instruments) Int64Counter(name string, o ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	c := metric.NewInt64CounterConfig(o...)
	i.note(name, "counter", c.Unit(), c.Description())
	return i.Meter.Int64Counter(name)
}

func (i *instruments) Int64UpDownCounter(name string, o ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	c := metric.NewInt64UpDownCounterConfig(o...)
	i.note(name, "up-down counter", c.Unit(), c.Description())
	return i.Meter.Int64UpDownCounter(name)
}

func (i *instruments) Int64Gauge(name string, o ...metric.Int64GaugeOption) (metric.Int64Gauge, error) {
	c := metric.NewInt64GaugeConfig(o...)
	i.note(name, "gauge", c.Unit(), c.Description())
	return i.Meter.Int64Gauge(name)
}

func (i *instruments) Float64Histogram(name string, o ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	c := metric.NewFloat64HistogramConfig(o...)
	i.note(name, "histogram", c.Unit(), c.Description())
	return i.Meter.Float64Histogram(name)
}

func (i *instruments) Int64ObservableUpDownCounter(name string, o ...metric.Int64ObservableUpDownCounterOption) (metric.Int64ObservableUpDownCounter, error) {
	c := metric.NewInt64ObservableUpDownCounterConfig(o...)
	i.note(name, "up-down counter, observed", c.Unit(), c.Description())
	return i.Meter.Int64ObservableUpDownCounter(name)
}

func (i *instruments) Int64ObservableCounter(name string, o ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	c := metric.NewInt64ObservableCounterConfig(o...)
	i.note(name, "counter, observed", c.Unit(), c.Description())
	return i.Meter.Int64ObservableCounter(name)
}

func (i *instruments) Int64ObservableGauge(name string, o ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	c := metric.NewInt64ObservableGaugeConfig(o...)
	i.note(name, "gauge, observed", c.Unit(), c.Description())
	return i.Meter.Int64ObservableGauge(name)
}

func (i *instruments) Float64ObservableGauge(name string, o ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	c := metric.NewFloat64ObservableGaugeConfig(o...)
	i.note(name, "gauge, observed", c.Unit(), c.Description())
	return i.Meter.Float64ObservableGauge(name)
}

var metricRow = regexp.MustCompile("(?m)^\\| `(holdfast\\.[a-z.]+)` \\| (.*) \\|$")

// TestEveryInstrumentIsOnThePage, with its kind and its description, and no other is.
func TestEveryInstrumentIsOnThePage(t *testing.T) {
	page := map[string]string{}
	for _, m := range metricRow.FindAllStringSubmatch(read(t, root+"/docs/metrics.md"), -1) {
		page[m[1]] = m[2]
	}
	made := everyInstrument(t)
	require.Equal(t, slices.Sorted(maps.Keys(made)), slices.Sorted(maps.Keys(page)))
	require.Equal(t, made, page)
}

// everyInstrument is what a node with all its parts, and a fence, make: kind and description, by name.
var everyInstrument = once(func(t *testing.T) map[string]string {
	made := &instruments{all: map[string]string{}}
	p := provider{instruments: made}
	n, err := node.Start(t.Context(), node.Config{ID: "a", Store: memory.New(), Group: "g", Logger: zap.NewNop(), MeterProvider: p,
		Lease: lease.Config{MeterNames: true}})
	require.NoError(t, err)
	props := actor.PropsFromFunc(func(actor.Context) {})
	_, err = n.Singleton("s", props)
	require.NoError(t, err)
	_, err = n.Sharded("t", props)
	require.NoError(t, err)
	_, err = n.Partitions(partition.Config{Name: "p", Count: 1, Own: func(context.Context, partition.Owned) error { return nil }})
	require.NoError(t, err)
	require.NoError(t, n.Stop(t.Context()))
	otel.SetMeterProvider(p)
	require.ErrorIs(t, lease.NewFence(2).Advance(1), lease.ErrStale)
	return made.all
})

// once has f called by the first test that asks for its result.
func once[T any](f func(*testing.T) T) func(*testing.T) T {
	var first sync.Once
	var result T
	return func(t *testing.T) T {
		first.Do(func() { result = f(t) })
		return result
	}
}
