package boundary

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// defaultLevel is the lowest level that Default passes on.
const defaultLevel = zapcore.WarnLevel

var defaultLogger = zap.New(&slogCore{})

// Default is the logger where the user gives none. It passes warnings and errors on to the
// slog.Default() of that moment.
func Default() *zap.Logger { return defaultLogger }

// slogCore is a zapcore.Core over slog.Default().
type slogCore struct{ fields []zapcore.Field }

func (c *slogCore) Enabled(l zapcore.Level) bool {
	return l >= defaultLevel && slog.Default().Enabled(context.Background(), slogLevel(l))
}

func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{append(slices.Clip(c.fields), fields...)}
}

func (c *slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write turns fields into attributes, in their order. Nested fields stay nested.
func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	text := e.Message
	if e.LoggerName != "" {
		text = e.LoggerName + ": " + text
	}
	r := slog.NewRecord(e.Time, slogLevel(e.Level), text, e.Caller.PC)
	for _, f := range append(slices.Clip(c.fields), fields...) {
		m := zapcore.NewMapObjectEncoder()
		f.AddTo(m)
		for key, v := range m.Fields {
			if !strings.HasSuffix(key, "Verbose") || key == f.Key { // an error's own trace
				r.AddAttrs(slog.Any(key, v))
			}
		}
	}
	return slog.Default().Handler().Handle(context.Background(), r)
}

func (c *slogCore) Sync() error { return nil }

// slogLevel is l for slog, whose levels are four apart.
func slogLevel(l zapcore.Level) slog.Level { return 4 * slog.Level(min(l, zapcore.ErrorLevel)) }
