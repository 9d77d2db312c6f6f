package sharding

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"

	"github.com/holdfast-go/holdfast/internal/actors"
)

// registry is what an actor system knows of its Regions.
type registry struct {
	mu      sync.Mutex
	regions map[string]*Region
}

var registryID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*registry) ExtensionID() extensions.ExtensionID { return registryID }

func registryOf(system *actor.ActorSystem) *registry {
	return actors.Extension(system, registryID, func() *registry { return &registry{regions: map[string]*Region{}} })
}

func (g *registry) add(r *Region) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.regions[r.names.Key] != nil {
		return false
	}
	g.regions[r.names.Key] = r
	return true
}

// region returns the present Region of a key; nil if there is none.
func (g *registry) region(key string) *Region {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.regions[key]
}

func (g *registry) remove(r *Region) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.regions, r.names.Key)
}
