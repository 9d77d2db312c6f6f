package lease

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/feed"
)

// laterMost bounds what waits to be logged or measured.
const laterMost = 10_000

// later writes log lines and calls instruments in order, on a goroutine of its own: they are
// noted under Keeper.mu, where no users' code may run.
type later struct {
	log   *zap.Logger // the user's
	least zapcore.Level
	queue feed.Queue
}

// The classes of the queue: a burst of lines drops no measurement.
const (
	measurements = iota
	lines
)

// newLater adds fields to the lines of the user's logger. It asks that logger for its level when a line
// is written, and knows the level of the default logger.
func newLater(log *zap.Logger, fields ...zap.Field) *later {
	l := &later{log: log.With(fields...), least: zapcore.DebugLevel}
	switch log.Core() {
	case boundary.Default().Core():
		l.least = zapcore.WarnLevel
	case zapcore.NewNopCore():
		l.least = zapcore.InvalidLevel
	}
	l.queue = feed.Queue{Limit: laterMost,
		Call: func(f func()) { _ = boundary.Contained(f) }, // it would have to be logged
		Dropped: func(_ int, n int64, first bool) {
			if first {
				_ = boundary.Contained(func() {
					l.log.Warn("lines or measurements were dropped: the logger or meter is too slow", zap.Int64("count", n))
				})
			}
		}}
	return l
}

// wait waits for a moment until nothing is left to do.
func (l *later) wait() {
	select {
	case <-l.queue.Idle():
	case <-time.After(100 * time.Millisecond):
	}
}

// logger returns the user's logger, written later.
func (l *later) logger() *zap.Logger {
	return l.log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return laterCore{c, l} }))
}

// laterCore is the core of later's logger.
type laterCore struct {
	zapcore.Core
	l *later
}

func (c laterCore) Enabled(level zapcore.Level) bool { return level >= c.l.least }

func (c laterCore) With(fields []zapcore.Field) zapcore.Core {
	c.Core = zapcore.NewLazyWith(c.Core, fields)
	return c
}

func (c laterCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c laterCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.l.queue.Put(lines, feed.Item{Do: func() {
		if ce := c.Core.Check(e, nil); ce != nil {
			ce.Write(fields...)
		}
	}})
	return nil
}
