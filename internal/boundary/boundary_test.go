package boundary_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

func TestAPanicIsAnError(t *testing.T) {
	want := errors.New("plain")
	require.Equal(t, want, boundary.Call(func() error { return want }))
	require.ErrorContains(t, boundary.Call(func() error { panic("boom") }), "panicked: boom")
	require.NoError(t, boundary.Contained(func() {}))
	require.ErrorContains(t, boundary.Contained(func() { panic("boom") }), "panicked: boom")
	told := make(chan error)
	boundary.Aside(func() (int, error) { panic("boom") }, func(v int, err error) { require.Zero(t, v); told <- err })
	require.ErrorContains(t, <-told, "boom")
}

func TestWaitEndsWithItsContext(t *testing.T) {
	var g sync.WaitGroup
	release := make(chan struct{})
	g.Go(func() { <-release })
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	require.Equal(t, why, boundary.Wait(ctx, &g))
	close(release)
	require.NoError(t, boundary.Wait(t.Context(), &g))
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
	log := boundary.Default().Named("me").With(zap.String("first", "1"))
	log.Debug("not this")
	log.Info("nor this")
	log.Warn("this", zap.Int("n", 2), zap.Error(errors.New("lease expired")))
	log.Error("and this", zap.Strings("names", []string{"a", "b"}))
	require.Equal(t, `level=WARN msg="me: this" first=1 n=2 error="lease expired"`+"\n"+
		`level=ERROR msg="me: and this" first=1 names="[a b]"`+"\n", lines.String())

	// One for a user's own logger passes on what that takes.
	lines.Reset()
	var own slog.Logger = *slog.Default().With("own", true)
	log = boundary.ToSlog(func() *slog.Logger { return &own }, zapcore.DebugLevel)
	log.Debug("low")
	log.Info("usual")
	own = *slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelError}))
	log.Warn("not this")
	require.Equal(t, "level=DEBUG msg=low own=true\nlevel=INFO msg=usual own=true\n", lines.String())
}
