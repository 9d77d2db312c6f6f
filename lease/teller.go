package lease

import (
	"context"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

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
	t := &teller.Teller{Lost: func(n int) {
		l.Warn("lines were dropped: the logger is too slow, or panicked", zap.Int("count", n))
	}}
	floor := zapcore.DebugLevel // what l takes may change at any time
	switch core := l.Core(); core {
	case zapcore.NewNopCore():
		floor = zapcore.InvalidLevel
	case DefaultLogger().Core():
		floor = defaultLevel
	}
	return l.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core { return tellingCore{core, floor, t} })), t
}

// tellingCore is a zapcore.Core that lets a teller call another.
type tellingCore struct {
	zapcore.Core
	floor zapcore.Level
	t     *teller.Teller
}

func (c tellingCore) Enabled(l zapcore.Level) bool { return l >= c.floor }

func (c tellingCore) With(fields []zapcore.Field) zapcore.Core {
	c.Core = zapcore.NewLazyWith(c.Core, fields)
	return c
}

func (c tellingCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write has the core that was wrapped decide, and write.
func (c tellingCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.t.Tell(func() {
		if ce := c.Core.Check(e, nil); ce != nil {
			ce.Write(fields...)
		}
	})
	return nil
}

// Sync does nothing: who syncs is the user, with the logger that is wrapped.
func (c tellingCore) Sync() error { return nil }

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
