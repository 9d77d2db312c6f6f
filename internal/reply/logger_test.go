package reply

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/quiet"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/internal/wire"
)

type value struct{ N int }

func init() {
	if err := wire.Register[value](wire.Default, "reply.value", nil); err != nil {
		panic(err)
	}
}

// A logger that fails, or does not return, at an answer that is refused holds up no other.
func TestALoggerThatFailsHoldsUpNoAnswer(t *testing.T) {
	simulate.UnkindLoggers(t, simulate.Warnings, func(t *testing.T, logger *slog.Logger) {
		warned = quiet.Line{}
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
}
