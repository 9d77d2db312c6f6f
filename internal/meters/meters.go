// Package meters makes instruments. They are users' code: call them under no lock.
//
//	m := meters.New(provider, "lease", attribute.String("holdfast.keeper", id))
//	i := &instruments{losses: m.Counter("losses", "Terms that ended against their holder's will.")}
//	if err := m.Err(); err != nil { … }
//	i.losses.Add(1)
package meters

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

const module = "github.com/holdfast-go/holdfast/"

// Maker makes the instruments of one part of a node. When one can't be made it makes no
// more of them. It is for one goroutine.
type Maker struct {
	meter  metric.Meter
	prefix string // of names
	attrs  []attribute.KeyValue
	err    error
}

// New returns a Maker for a package of this module, whose instruments are named
// "holdfast.<part>.…". What they measure carries attrs.
func New(p metric.MeterProvider, part string, attrs ...attribute.KeyValue) *Maker {
	m := &Maker{prefix: "holdfast." + part + ".", attrs: attrs}
	m.meter = p.Meter(module + part)
	return m
}

// Err says why an instrument could not be made. It is known after the last of them.
func (m *Maker) Err() error { return m.err }

// made asks the MeterProvider for an instrument, unless something failed before.
func made[O, I any](m *Maker, ask func(name string, opts ...O) (I, error), name, what string, opts ...O) (i I) {
	if m.err == nil {
		i, m.err = ask(m.prefix+name, append(opts, any(metric.WithDescription(what)).(O))...)
	}
	return i
}

// attributes are those of all that is measured, and more, as an option.
func (m *Maker) attributes(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(slices.Clip(m.attrs), more...)...))
}

// adder is an instrument of a Counter.
type adder interface {
	Add(ctx context.Context, n int64, opts ...metric.AddOption)
}

// Counter counts up or, if it came from UpDown, down too.
type Counter struct {
	to adder
	at []metric.AddOption // made once, so that an Add makes none
}

// counter makes a Counter, unless something failed. It begins by adding 0: the first event is a change,
// which alarms see.
func (m *Maker) counter(to adder, more ...attribute.KeyValue) Counter {
	c := Counter{to, []metric.AddOption{m.attributes(more...)}}
	if m.err == nil {
		_ = boundary.Contained(func() { c.Add(0) })
	}
	return c
}

// Counter makes a counter.
func (m *Maker) Counter(name, what string) Counter {
	return m.counter(made(m, m.meter.Int64Counter, name, what))
}

// CounterBy makes a counter of which one is returned for each value of an attribute.
func (m *Maker) CounterBy(name, what, key string, values ...string) map[string]Counter {
	to, all := made(m, m.meter.Int64Counter, name, what), map[string]Counter{}
	for _, v := range values {
		all[v] = m.counter(to, attribute.String(key, v))
	}
	return all
}

// UpDown makes a counter that goes down, too.
func (m *Maker) UpDown(name, what string) Counter {
	return m.counter(made(m, m.meter.Int64UpDownCounter, name, what))
}

// Add counts n.
func (c Counter) Add(n int64) { c.to.Add(context.Background(), n, c.at...) }

// Gauge is a number that is set.
type Gauge struct {
	to metric.Int64Gauge
	at metric.MeasurementOption
}

// Gauge makes a gauge.
func (m *Maker) Gauge(name, what string) Gauge {
	return Gauge{made(m, m.meter.Int64Gauge, name, what), m.attributes()}
}

// Set sets the number.
func (g Gauge) Set(n int64) { g.to.Record(context.Background(), n, g.at) }

// Times is a histogram of durations, in seconds.
type Times struct {
	to metric.Float64Histogram
	by *Maker
	at []metric.RecordOption // made once, so that a Record makes none
}

// usual are the bounds of buckets where none are given, in seconds.
var usual = []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 300}

// Times makes a histogram with these bounds of its buckets, in seconds. Without any they
// reach from 1 ms to 5 minutes.
func (m *Maker) Times(name, what string, bounds ...float64) Times {
	if len(bounds) == 0 {
		bounds = usual
	}
	to := made[metric.Float64HistogramOption](m, m.meter.Float64Histogram, name, what, metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(bounds...))
	return Times{to, m, nil}.With()
}

// With returns the histogram with more attributes.
func (t Times) With(more ...attribute.KeyValue) Times {
	t.at = []metric.RecordOption{t.by.attributes(more...)}
	return t
}

// Enabled reports whether a provider takes what is recorded.
func (t Times) Enabled() bool { return t.to.Enabled(context.Background()) }

// Record counts one duration.
func (t Times) Record(d time.Duration) { t.to.Record(context.Background(), d.Seconds(), t.at...) }

var refusals = sync.OnceValue(func() Counter {
	m := New(otel.GetMeterProvider(), "fence")
	c := m.Counter("refusals", "Writes that were refused for an old token, in this process.")
	if m.Err() != nil {
		return Counter{to: noop.Int64Counter{}}
	}
	return c
})

// RefusedByFence counts a write that was refused for an old token, for OpenTelemetry's global
// MeterProvider: a fence has no other.
func RefusedByFence() { refusals().Add(1) }

// Observed is a number, or some, that are asked for when metrics are read. now must not block: the user's
// reader calls it.
type Observed struct {
	of  metric.Observable
	now func(to metric.Observer)
}

// ObservedUpDown makes a number that goes up and down.
func (m *Maker) ObservedUpDown(name, what string, now func() int64) Observed {
	o := made(m, m.meter.Int64ObservableUpDownCounter, name, what)
	return Observed{o, func(to metric.Observer) { to.ObserveInt64(o, now(), m.attributes()) }}
}

// ObservedCounter makes a number that grows only.
func (m *Maker) ObservedCounter(name, what string, now func() int64) Observed {
	o := made(m, m.meter.Int64ObservableCounter, name, what)
	return Observed{o, func(to metric.Observer) { to.ObserveInt64(o, now(), m.attributes()) }}
}

// ObservedBy makes a gauge with a number for each value of the attribute key, with which now calls tell.
func (m *Maker) ObservedBy(name, what, key string, now func(tell func(value string, n int64))) Observed {
	o := made(m, m.meter.Int64ObservableGauge, name, what)
	return Observed{o, func(to metric.Observer) {
		now(func(value string, n int64) { to.ObserveInt64(o, n, m.attributes(attribute.String(key, value))) })
	}}
}

// ObservedTime makes a gauge in seconds. It has no value while now does not call tell.
func (m *Maker) ObservedTime(name, what string, now func(tell func(time.Duration))) Observed {
	o := made[metric.Float64ObservableGaugeOption](m, m.meter.Float64ObservableGauge, name, what, metric.WithUnit("s"))
	return Observed{o, func(to metric.Observer) {
		now(func(d time.Duration) { to.ObserveFloat64(o, d.Seconds(), m.attributes()) })
	}}
}

// Observe has the numbers asked for until stop.
func (m *Maker) Observe(all ...Observed) (stop func()) {
	if m.err != nil {
		return func() {}
	}
	instruments := make([]metric.Observable, len(all))
	for i, o := range all {
		instruments[i] = o.of
	}
	var reg metric.Registration
	reg, m.err = m.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for _, o := range all {
			o.now(to)
		}
		return nil
	}, instruments...)
	return func() { _ = boundary.Contained(func() { _ = reg.Unregister() }) } // what fails in it is none of ours
}
