// Package extension keeps one value of a kind for an actor system, as an extension
// of protoactor's, whose table of them is not safe for concurrent use by itself.
package extension

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
)

var mu sync.Mutex

// Of returns the extension of system with that id; if it has none, what create
// returns from now on. create must not call Of. Safe for concurrent use.
func Of[T extensions.Extension](system *actor.ActorSystem, id extensions.ExtensionID, create func() T) T {
	mu.Lock()
	defer mu.Unlock()
	if x, ok := system.Extensions.Get(id).(T); ok {
		return x
	}
	x := create()
	system.Extensions.Register(x)
	return x
}
