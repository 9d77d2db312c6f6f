// Package actors is what protoactor's actor systems lack for this module.
//
//	Extension    one value of a kind for an actor system
//	Families     one process that stands for a family of actor ids
//	WatchLinks   tells of links to other nodes that broke
//	AfterShutdown
//	             tells of the end of an actor system
//
// A process of Families need not register each id: messages to the ids from other nodes
// reach it as they are, in no envelope, with all that their way needs in the id.
//
//	holdfast/at/<family>/<rest>       family: two segments; rest: the family's own
//
// A transport that knows of it says so with Enable, and asks Resolve about a target that is
// not registered. Nodes learn by other means which nodes can be reached like this: at any
// other node such a PID is a dead end.
package actors

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
)

// NoAddress is what protoactor calls a system without remote.
const NoAddress = "nonhost"

// CheckAddress returns an error unless the address of a Keeper is that of its system, or both have
// none.
func CheckAddress(system *actor.ActorSystem, keeper string) error {
	if is := system.Address(); is != keeper && (is != NoAddress || keeper != "") {
		return fmt.Errorf("the keeper's address (lease.Config.Address) is %q, must be the actor system's, %q: start remote before", keeper, is)
	}
	return nil
}

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

// AfterShutdown calls f once system was shut down, unless stop is called before. protoactor publishes nothing
// then: it is looked for each second.
func AfterShutdown(system *actor.ActorSystem, f func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var look func()
	look = func() {
		switch {
		case ctx.Err() != nil:
		case system.IsStopped():
			f()
		default:
			time.AfterFunc(time.Second, look)
		}
	}
	look()
	return cancel
}
