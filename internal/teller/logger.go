package teller

import (
	"cmp"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Logger returns a logger that passes on to l what it is given, in order, by the Teller:
// an l that blocks, panics or calls back holds nothing up. The caller may hold a lock: l is
// not even asked at once whether it takes lines of a level. A nil l is Default().
func Logger(l *zap.Logger) (*zap.Logger, *Teller) {
	if l == nil || l.Core() == defaultLogger.Core() {
		return LoggerFrom(cmp.Or(l, defaultLogger), defaultLevel)
	}
	return LoggerFrom(l, zapcore.DebugLevel) // what l takes may change at any time
}

// LoggerFrom is Logger for lines of the level floor and above; what is below is left out.
func LoggerFrom(l *zap.Logger, floor zapcore.Level) (*zap.Logger, *Teller) {
	if l.Core() == zapcore.NewNopCore() {
		floor = zapcore.InvalidLevel
	}
	return logger(l, func(level zapcore.Level) bool { return level >= floor })
}

// LoggerAsked is Logger for a caller that logs much that l does not take, and holds no lock:
// l is asked at once whether it takes lines of a level.
func LoggerAsked(l *zap.Logger) (*zap.Logger, *Teller) {
	from := l.Core()
	return logger(l, func(level zapcore.Level) (yes bool) {
		survives(func() { yes = from.Enabled(level) })
		return yes
	})
}

func logger(l *zap.Logger, takes func(zapcore.Level) bool) (*zap.Logger, *Teller) {
	t := &Teller{Lost: func(n int) {
		l.Warn("lines were dropped: the logger is too slow, or panicked", zap.Int("count", n))
	}}
	return l.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return core{c, takes, t} })), t
}

// stderr is where zap tells of lines that could not be written.
var stderr = zapcore.Lock(os.Stderr)

// core lets a Teller call another.
type core struct {
	zapcore.Core
	takes func(zapcore.Level) bool
	t     *Teller
}

func (c core) Enabled(l zapcore.Level) bool { return c.takes(l) }

func (c core) With(fields []zapcore.Field) zapcore.Core {
	c.Core = zapcore.NewLazyWith(c.Core, fields)
	return c
}

func (c core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write has the core that was wrapped decide, as it may be several, and write.
func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.t.Tell(func() {
		if ce := c.Core.Check(e, nil); ce != nil {
			ce.ErrorOutput = stderr
			ce.Write(fields...)
		}
	})
	return nil
}

// Sync does nothing: the user syncs the logger that is wrapped.
func (c core) Sync() error { return nil }
