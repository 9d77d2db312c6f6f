package sharding_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/holdfast-go/holdfast/sharding"
)

// leveled is a logger's core that does what f does when it is asked for its level.
type leveled struct {
	zapcore.Core
	f func()
}

func (l leveled) Enabled(zapcore.Level) bool        { l.f(); return true }
func (l leveled) With([]zapcore.Field) zapcore.Core { return l }

// Whether a logger takes a line is asked aside, too.
func TestALoggerThatFailsToSayItsLevel(t *testing.T) {
	for name, f := range map[string]func(release chan struct{}){
		"hang":   func(release chan struct{}) { <-release },
		"goexit": func(chan struct{}) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(c *cluster) {
				n := c.node("a")
				release := make(chan struct{})
				c.atEnd(func() { close(release) })
				r := n.start(4, sharding.WithLogger(zap.New(leveled{zapcore.NewNopCore(), func() { f(release) }})))
				c.settled(5*time.Second, n)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				require.NoError(t, r.Stop(ctx))
			})
		})
	}
}
