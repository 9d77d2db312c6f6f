package outside_test

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/outside"
)

// unkind is a logger that does what it is told.
type unkind struct {
	slog.Handler
	do func()
}

func (unkind) Enabled(_ context.Context, l slog.Level) bool    { return l >= slog.LevelWarn }
func (l unkind) WithAttrs([]slog.Attr) slog.Handler            { return l }
func (l unkind) Handle(_ context.Context, r slog.Record) error { l.do(); return nil }

// A subscriber fails, or does not return, and so does the logger that is told of it. Who
// publishes goes on, and what comes later is told.
func TestALoggerThatFailsEndsNothing(t *testing.T) {
	for what, fail := range map[string]func(release chan struct{}){
		"panics":             func(chan struct{}) { panic("a logger's bug") },
		"ends the goroutine": func(chan struct{}) { runtime.Goexit() },
		"hangs":              func(release chan struct{}) { <-release },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				defer func() { close(release); time.Sleep(2 * time.Second) }()
				logger := slog.New(unkind{slog.DiscardHandler, func() { fail(release) }})
				system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return logger }))
				var got []any
				system.EventStream.Subscribe(func(e any) {
					got = append(got, e)
					switch e {
					case 1:
						panic("a subscriber's bug")
					case 2:
						time.Sleep(10 * outside.Patience)
					}
				})
				went := make(chan struct{})
				go func() {
					defer close(went)
					for i := range 5 {
						outside.Of(system).Publish(i)
					}
				}()
				time.Sleep(time.Minute)
				synctest.Wait()
				select {
				case <-went:
				default:
					require.Fail(t, "who publishes does not go on")
				}
				require.Equal(t, []any{0, 1, 2, 3, 4}, got)
			})
		})
	}
}
