package simulate

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Break breaks a call of a user's code off for an n of 0 or 1: by a panic, or by the end of its
// goroutine. For others it does nothing.
func Break(n int) {
	switch n {
	case 0:
		panic("a bug of the user's")
	case 1:
		runtime.Goexit()
	}
}

// Go runs f on a goroutine of g, and fails t if that does not come back: something that f called
// has ended it, which is not told otherwise.
func Go(t testing.TB, g *sync.WaitGroup, f func()) {
	g.Go(func() {
		returned := false
		defer func() {
			if !returned && !t.Failed() {
				t.Error("a goroutine of the history was ended by what it called")
			}
		}()
		f()
		returned = true
	})
}

// Rude is how loggers and instruments behave until Good says that trouble is over: one call
// of eight takes up to Longest, one panics, and one ends its goroutine.
type Rude struct {
	Good    func() bool
	Longest time.Duration
}

func (r Rude) do() {
	if r.Good() {
		return
	}
	if n := rand.IntN(8); n == 2 {
		time.Sleep(rand.N(r.Longest))
	} else {
		Break(n)
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
