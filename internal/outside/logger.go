package outside

import (
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Logger returns l with what its cores panic with contained: the line is lost.
func Logger(l *zap.Logger) *zap.Logger {
	return l.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return core{c} }))
}

// stderr is where zap tells of lines that could not be written.
var stderr = zapcore.Lock(os.Stderr)

type core struct{ zapcore.Core }

func (c core) Enabled(l zapcore.Level) (ok bool) {
	_ = Call(func() error { ok = c.Core.Enabled(l); return nil })
	return ok
}

func (c core) With(fields []zapcore.Field) zapcore.Core {
	with := c.Core
	if Call(func() error { with = c.Core.With(fields); return nil }) != nil {
		with = c.Core
	}
	return core{with}
}

// Check has the line written by this core, and not by the one within: that writes what
// it would have.
func (c core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	return Call(func() error {
		// A core within may be several, of which each has a say in what it writes.
		if ce := c.Core.Check(e, nil); ce != nil {
			ce.ErrorOutput = stderr
			ce.Write(fields...)
		}
		return nil
	})
}

func (c core) Sync() error { return Call(c.Core.Sync) }
