package singleton_test

import (
	"runtime"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/holdfast-go/holdfast/singleton"
)

// leveled is a logger's core that does what f does when it is asked for its level.
type leveled struct {
	zapcore.Core
	f func()
}

func (l leveled) Enabled(zapcore.Level) bool        { l.f(); return true }
func (l leveled) With([]zapcore.Field) zapcore.Core { return l }
func (l leveled) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Enabled(e.Level) {
		return ce.AddCore(e, l)
	}
	return ce
}

// Whether a logger takes a line is asked aside, too.
func TestALoggerThatFailsToSayItsLevel(t *testing.T) {
	for name, f := range map[string]func(release chan struct{}){
		"hang":   func(release chan struct{}) { <-release },
		"panic":  func(chan struct{}) { panic("a logger's bug") },
		"goexit": func(chan struct{}) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				a, b := c.node("a"), c.node("b")
				release := make(chan struct{})
				c.atEnd(func() { close(release) })
				ma := a.run("x", singleton.WithLogger(zap.New(leveled{zapcore.NewNopCore(), func() { f(release) }})))
				until(t, time.Second, "hosts", active(ma))
				mb := b.run("x")
				time.Sleep(time.Second)
				goesOn(t, c, a, b, ma, mb)
			})
		})
	}
}
