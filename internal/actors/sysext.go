package actors

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
)

// extending guards the table of extensions of every actor system, which is not safe for
// concurrent use by itself.
var extending sync.Mutex

// Extension returns the extension of system with that id; if it has none, what create
// returns from now on. create must not call Extension. Safe for concurrent use.
func Extension[T extensions.Extension](system *actor.ActorSystem, id extensions.ExtensionID, create func() T) T {
	extending.Lock()
	defer extending.Unlock()
	if x, ok := system.Extensions.Get(id).(T); ok {
		return x
	}
	x := create()
	system.Extensions.Register(x)
	return x
}
