package remoting

import (
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
)

// LogTo has an actor system log to logger, under the name "protoactor"; nil
// means nowhere. It is an option of actor.NewActorSystem.
func LogTo(logger *zap.Logger) actor.ConfigOption {
	if logger == nil {
		logger = zap.NewNop()
	}
	return actor.WithLoggerFactory(func(system *actor.ActorSystem) *slog.Logger {
		return slog.New(zapslog.NewHandler(logger.Core(), zapslog.WithName("protoactor"))).With("system", system.ID)
	})
}
