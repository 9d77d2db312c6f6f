package sharding

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"

	"github.com/holdfast-go/holdfast/internal/actors"
)

// registry is what an actor system knows of its Regions: by names.Key.
type registry struct{ sync.Map }

var registryID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*registry) ExtensionID() extensions.ExtensionID { return registryID }

func registryOf(system *actor.ActorSystem) *registry {
	return actors.Extension(system, registryID, func() *registry { return &registry{} })
}
