package teller_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/internal/teller"
)

// rude is a core that fails.
type rude struct{ fail func() }

func (rude) Enabled(zapcore.Level) bool                   { return true }
func (r rude) With([]zapcore.Field) zapcore.Core          { return r }
func (r rude) Write(zapcore.Entry, []zapcore.Field) error { r.fail(); return nil }
func (r rude) Sync() error                                { r.fail(); return nil }
func (r rude) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return ce.AddCore(e, r)
}

func TestALoggerWhoseCoreFails(t *testing.T) {
	for _, fail := range []func(){func() { panic("the disk is on fire") }, runtime.Goexit} {
		good, lines := observer.New(zap.InfoLevel)
		l, told := teller.Logger(zap.New(zapcore.NewTee(good, rude{fail})))
		l = l.With(zap.String("with", "it"))
		l.Info("one", zap.Int("n", 1))
		l.Debug("of a lower level")
		l.Info("two")
		teller.Flush(told)
		require.Equal(t, 1, lines.FilterMessage("one").Len())
		require.Equal(t, map[string]any{"with": "it", "n": int64(1)}, lines.FilterMessage("one").All()[0].ContextMap())
		require.Equal(t, 1, lines.FilterMessage("two").Len())
		require.Equal(t, 0, lines.FilterMessageSnippet("lower").Len())
		require.NotZero(t, lines.FilterMessageSnippet("dropped").Len())
	}
}

func TestALoggerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		good, lines := observer.New(zap.InfoLevel)
		l, told := teller.Logger(zap.New(zapcore.NewTee(rude{func() { <-release }}, good)))
		began := time.Now()
		for range 10_100 {
			l.Info("line")
		}
		require.Zero(t, time.Since(began))
		teller.Flush(told)
		require.Equal(t, 100*time.Millisecond, time.Since(began))
		close(release)
		teller.Flush(told)
		require.Equal(t, 10_001, lines.FilterMessage("line").Len())
		require.Equal(t, int64(99), lines.FilterMessageSnippet("dropped").All()[0].ContextMap()["count"])
	})
}

func TestALoggerThatIsNotAskedForItsLevel(t *testing.T) {
	core, lines := observer.New(zap.WarnLevel)
	l, told := teller.LoggerFrom(zap.New(core), zap.InfoLevel)
	require.Nil(t, l.Check(zap.DebugLevel, "debug"))
	require.NotNil(t, l.Check(zap.InfoLevel, "info"), "asked later")
	l.Info("info")
	l.Warn("warn")
	teller.Flush(told)
	require.Equal(t, 1, lines.Len())
}
