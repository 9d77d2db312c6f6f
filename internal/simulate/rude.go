package simulate

import (
	"context"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Rude is how loggers and instruments behave until Good says that trouble is over: one call
// of eight takes up to Longest, and one panics.
type Rude struct {
	Good    func() bool
	Longest time.Duration
}

func (r Rude) do() {
	if r.Good() {
		return
	}
	switch rand.IntN(8) {
	case 0:
		time.Sleep(rand.N(r.Longest))
	case 1:
		panic("a bug of the user's")
	}
}

// Logger makes a logger like that; what it logs is logged.
func (r Rude) Logger() zap.Option {
	return zap.WrapCore(func(c zapcore.Core) zapcore.Core { return zapcore.NewTee(c, rudeCore{zapcore.NewNopCore(), r}) })
}

type rudeCore struct {
	zapcore.Core
	rude Rude
}

func (c rudeCore) Enabled(l zapcore.Level) bool               { c.rude.do(); return l >= zapcore.InfoLevel }
func (c rudeCore) With([]zapcore.Field) zapcore.Core          { c.rude.do(); return c }
func (c rudeCore) Write(zapcore.Entry, []zapcore.Field) error { c.rude.do(); return nil }

func (c rudeCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return ce.AddCore(e, c)
}

// Meters returns a MeterProvider whose instruments are like that.
func (r Rude) Meters() metric.MeterProvider { return rudeProvider{rude: r} }

type (
	rudeProvider struct {
		noop.MeterProvider
		rude Rude
	}
	rudeMeter struct {
		noop.Meter
		rude Rude
	}
	rudeCounter struct {
		noop.Int64Counter
		rude Rude
	}
	rudeUpDown struct {
		noop.Int64UpDownCounter
		rude Rude
	}
	rudeGauge struct {
		noop.Int64Gauge
		rude Rude
	}
	rudeHistogram struct {
		noop.Float64Histogram
		rude Rude
	}
)

func (p rudeProvider) Meter(string, ...metric.MeterOption) metric.Meter {
	return rudeMeter{rude: p.rude}
}

func (m rudeMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return rudeCounter{rude: m.rude}, nil
}

func (m rudeMeter) Int64UpDownCounter(string, ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	return rudeUpDown{rude: m.rude}, nil
}

func (m rudeMeter) Int64Gauge(string, ...metric.Int64GaugeOption) (metric.Int64Gauge, error) {
	return rudeGauge{rude: m.rude}, nil
}

func (m rudeMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return rudeHistogram{rude: m.rude}, nil
}

func (c rudeCounter) Add(context.Context, int64, ...metric.AddOption)           { c.rude.do() }
func (c rudeUpDown) Add(context.Context, int64, ...metric.AddOption)            { c.rude.do() }
func (g rudeGauge) Record(context.Context, int64, ...metric.RecordOption)       { g.rude.do() }
func (h rudeHistogram) Record(context.Context, float64, ...metric.RecordOption) { h.rude.do() }
