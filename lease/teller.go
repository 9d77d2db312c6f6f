package lease

import (
	"context"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/teller"
)

// This file has loggers and instruments that a Teller calls.

// DetachedLogger returns a logger that passes on to l what it is given, by a goroutine
// of its own and in order, so that an l that blocks, panics or calls back holds nothing
// up. Lines that l does not keep up with are dropped, and counted. It is for stores,
// whose calls must not wait for a log; a nil l is DefaultLogger().
func DetachedLogger(l *zap.Logger) *zap.Logger {
	if l == nil {
		l = DefaultLogger()
	}
	detached, _ := tellingLogger(l)
	return detached
}

// tellingLogger returns a logger that passes on to l what it is given, by a teller.
func tellingLogger(l *zap.Logger) (*zap.Logger, *teller.Teller) {
	if l.Core() == DefaultLogger().Core() {
		return teller.LoggerFrom(l, defaultLevel)
	}
	return teller.Logger(l) // what l takes may change at any time
}

// counter and histogram are instruments that a teller calls. What is measured
// counts also if the Keeper has ended meanwhile.
type (
	counter struct {
		to interface {
			Add(ctx context.Context, n int64, opts ...metric.AddOption)
		}
		t *teller.Teller
	}
	histogram struct {
		to metric.Float64Histogram
		t  *teller.Teller
	}
)

func (c counter) Add(n int64, opts ...metric.AddOption) {
	c.t.Tell(func() { c.to.Add(context.Background(), n, opts...) })
}

func (h histogram) Record(v float64, opts ...metric.RecordOption) {
	h.t.Tell(func() { h.to.Record(context.Background(), v, opts...) })
}
