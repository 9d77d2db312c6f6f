package reply

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/quiet"
	"github.com/holdfast-go/holdfast/internal/wire"
)

type value struct{ N int }

func init() {
	if err := wire.Register[value](wire.Default, "reply.value", nil); err != nil {
		panic(err)
	}
}

// unkind is a logger that does what it is told.
type unkind struct {
	slog.Handler
	do func()
}

func (unkind) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (l unkind) WithAttrs([]slog.Attr) slog.Handler         { return l }
func (l unkind) Handle(context.Context, slog.Record) error  { l.do(); return nil }

// A logger that fails, or does not return, at an answer that is refused holds up no other.
func TestALoggerThatFailsHoldsUpNoAnswer(t *testing.T) {
	for what, fail := range map[string]func(release chan struct{}){
		"panics":             func(chan struct{}) { panic("a logger's bug") },
		"ends the goroutine": func(chan struct{}) { runtime.Goexit() },
		"hangs":              func(release chan struct{}) { <-release },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				warned = quiet.Line{}
				release := make(chan struct{})
				defer func() { close(release); time.Sleep(2 * time.Second) }()
				logger := slog.New(unkind{slog.DiscardHandler, func() { fail(release) }})
				system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return logger }))
				Start(system)
				var got []int
				pid := system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
					if m, ok := ctx.Message().(value); ok {
						got = append(got, m.N)
					}
				}))
				gateway := actor.NewPID(system.Address(), gatewayID)
				for n := range 3 {
					system.Root.Send(gateway, &wire.Envelope{}) // for nobody
					e, err := wire.Default.Envelop(value{n}, wire.DefaultLimit)
					require.NoError(t, err)
					e.Target = wire.AddressOf(pid)
					system.Root.Send(gateway, e)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, []int{0, 1, 2}, got)
			})
		})
	}
}
