package hosting

import "github.com/asynkron/protoactor-go/actor"

// Stateful is implemented by actors whose state moves with a planned hand-over: a
// singleton's child, or an entity. Every failure, and every change of host that was not
// planned, is a cold start: an actor that was given nothing (the event ColdStart). A panic is such a
// failure.
type Stateful interface {
	actor.Actor
	// HandOverState returns the state for the actor that the next host starts; nil for
	// none. It is called after Stopped, when nothing else of the actor runs. A child's is at
	// most 1 MiB, an entity's 64 KiB, and less if a message between nodes is (remoting.WithMaxMessageSize).
	HandOverState() ([]byte, error)
	// RestoreState is called before Started. On an error this actor is ended without
	// having seen any message, and another is made that starts cold.
	RestoreState(state []byte) error
}
