package remoting

import (
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"

	"github.com/holdfast-go/holdfast/internal/teller"
)

// LogTo has an actor system log to logger, under the name "protoactor"; nil
// means nowhere. A logger that panics or hangs holds nothing up. It is an option of actor.NewActorSystem.
func LogTo(logger *zap.Logger) actor.ConfigOption {
	if logger == nil {
		logger = zap.NewNop()
	}
	return actor.WithLoggerFactory(func(system *actor.ActorSystem) *slog.Logger {
		told, _ := teller.LoggerAsked(logger)
		return slog.New(zapslog.NewHandler(told.Core(), zapslog.WithName("protoactor"))).With("system", system.ID)
	})
}
