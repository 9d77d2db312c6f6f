package outside_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/outside"
	"github.com/holdfast-go/holdfast/internal/simulate"
)

// A subscriber fails, or does not return, and so does the logger that is told of it. Who
// publishes goes on, and what comes later is told.
func TestALoggerThatFailsEndsNothing(t *testing.T) {
	simulate.UnkindLoggers(t, simulate.Warnings, func(t *testing.T, logger *slog.Logger) {
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
}
