package lease

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

// laterMost bounds what waits to be logged or measured. What comes on top of it is dropped, and
// how much that was is logged.
const laterMost = 10_000

// later has log lines written and instruments called in order, on a goroutine of its own: they are
// noted under Keeper.mu, and code of users must not run there. Nor may a logger that hangs hold up
// renewals.
type later struct {
	log *zap.Logger // the user's

	mu      sync.Mutex
	queue   []func()
	dropped int
	idle    chan struct{} // closed when its goroutine ends; nil: it does not run
}

// do has f called.
func (l *later) do(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) >= laterMost {
		l.dropped++
		return
	}
	l.queue = append(l.queue, f)
	if l.idle == nil {
		l.idle = make(chan struct{})
		go l.run()
	}
}

func (l *later) run() {
	for f := l.next(); f != nil; f = l.next() {
		_ = boundary.Contained(f) // what panicked is where it would be logged
	}
}

func (l *later) next() (f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := l.dropped; {
	case n > 0 && len(l.queue) <= laterMost/2:
		l.dropped = 0
		return func() {
			l.log.Warn("lines or measurements were dropped: the logger or meter is too slow", zap.Int("count", n))
		}
	case len(l.queue) == 0:
		close(l.idle)
		l.queue, l.idle = nil, nil
		return nil
	}
	f, l.queue = l.queue[0], l.queue[1:]
	return f
}

// laterWithin is how long wait waits.
const laterWithin = 100 * time.Millisecond

// wait waits until nothing is left to do, for a moment: a logger that hangs does not hold up Close.
func (l *later) wait() {
	l.mu.Lock()
	idle := l.idle
	l.mu.Unlock()
	if idle == nil {
		return
	}
	t := time.NewTimer(laterWithin)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	}
}

// logger returns the user's logger, written later. It is asked for its level then, too; that of
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
