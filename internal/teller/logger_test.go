package teller_test

import (
	"errors"
	"log/slog"
	"runtime"
	"strings"
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
		l.Info("line")
		synctest.Wait() // it is being told, and takes no room
		for range 10_099 {
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

func TestTheDefaultLogger(t *testing.T) {
	var lines strings.Builder
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})))
	log := teller.Default().Named("me").With(zap.String("first", "1"))
	log.Debug("not this")
	log.Info("nor this")
	log.Warn("this", zap.Int("n", 2), zap.Error(errors.New("lease expired")))
	log.Error("and this", zap.Strings("names", []string{"a", "b"}))
	require.Equal(t, `level=WARN msg="me: this" first=1 n=2 error="lease expired"`+"\n"+
		`level=ERROR msg="me: and this" first=1 names="[a b]"`+"\n", lines.String())
}

// A user's logger is asked for its level later; the default one's is known.
func TestWhatIsBelowTheDefaultLoggersLevelIsLeftOut(t *testing.T) {
	for _, l := range []*zap.Logger{nil, teller.Default()} {
		log, _ := teller.Logger(l)
		require.Nil(t, log.Check(zap.InfoLevel, "info"))
		require.NotNil(t, log.Check(zap.WarnLevel, "warn"))
	}
}
