package wire

import (
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"

	"github.com/holdfast-go/holdfast/internal/actors"
)

// limit is what a message of an actor system may take.
type limit struct{ payload atomic.Int64 }

var limitID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*limit) ExtensionID() extensions.ExtensionID { return limitID }

func limitOf(system *actor.ActorSystem) *limit {
	return actors.Extension(system, limitID, func() *limit {
		l := &limit{}
		l.payload.Store(DefaultLimit)
		return l
	})
}

// LimitMessages sets how many bytes one message of system may take between nodes, its
// envelope included. Where it is not called that is DefaultMaxMessage.
func LimitMessages(system *actor.ActorSystem, bytes int) {
	limitOf(system).payload.Store(int64(bytes) - Headroom)
}

// PayloadLimit returns how many bytes the payload of one message of system may
// have: what LimitMessages says less Headroom. For nil, DefaultLimit.
func PayloadLimit(system *actor.ActorSystem) int {
	if system == nil {
		return DefaultLimit
	}
	return int(limitOf(system).payload.Load())
}
