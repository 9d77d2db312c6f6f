package wire

import "github.com/asynkron/protoactor-go/actor"

// OfSystem reports whether msg is one by which an actor learns of its own life, or of
// another's, from its actor system: as mail it would be believed.
func OfSystem(msg any) bool {
	switch msg.(type) {
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Restart, *actor.Stop, *actor.Failure,
		*actor.Watch, *actor.Unwatch, *actor.Terminated, *actor.ReceiveTimeout:
		return true
	}
	return false
}
