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
	queue feed.Queue
}

func newLater(log *zap.Logger) *later {
	l := &later{log: log}
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

// do calls f later.
func (l *later) do(f func()) { l.queue.Put(0, feed.Item{Do: f}) }

// wait waits for a moment until nothing is left to do.
func (l *later) wait() {
	select {
	case <-l.queue.Idle():
	case <-time.After(100 * time.Millisecond):
	}
}

// logger returns the user's logger, written later. Its level is asked for then, too; that of
// the default logger is known.
func (l *later) logger() *zap.Logger {
	least := zapcore.DebugLevel
	switch l.log.Core() {
	case boundary.Default().Core():
		least = zapcore.WarnLevel
	case zapcore.NewNopCore():
		least = zapcore.InvalidLevel
	}
	return l.log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return laterCore{c, least, l} }))
}

// laterCore is the core of later's logger.
type laterCore struct {
	zapcore.Core
	least zapcore.Level
	l     *later
}

func (c laterCore) Enabled(level zapcore.Level) bool { return level >= c.least }

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
	c.l.do(func() {
		if ce := c.Core.Check(e, nil); ce != nil {
			ce.Write(fields...)
		}
	})
	return nil
}
