package actors

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
)

// Parts are the names of singletons of one actor system that are about to be started as a
// part of something with an end of its own, such as a sharded type, which stops its
// coordinator: singleton.StopAll leaves those alone. It is safe for concurrent use.
type Parts struct{ names sync.Map }

var partsID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*Parts) ExtensionID() extensions.ExtensionID { return partsID }

// PartsOf returns the Parts of a system.
func PartsOf(system *actor.ActorSystem) *Parts {
	return Extension(system, partsID, func() *Parts { return &Parts{} })
}

// Add says that name is started as a part, until added is called.
func (p *Parts) Add(name string) (added func()) {
	p.names.Store(name, nil)
	return func() { p.names.Delete(name) }
}

// Has reports whether name is started as a part.
func (p *Parts) Has(name string) bool {
	_, ok := p.names.Load(name)
	return ok
}
