package wire

import (
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// AskPrefix is how the ids of questions begin: of processes that wait for one answer.
const AskPrefix = "ask/"

// Asker is a process that waits for an answer for a time.
type Asker interface {
	actor.Process
	// Patience returns for how long it goes on waiting; ok is false if that is not
	// known.
	Patience() (left time.Duration, ok bool)
}

// PatienceOf returns for how long the sender of a message goes on waiting for the
// answer, if it is an Asker of this system; 0 if it has given up.
func PatienceOf(system *actor.ActorSystem, sender *actor.PID) (left time.Duration, ok bool) {
	a, over := AskerOf(system, sender.GetAddress(), sender.GetId())
	if a == nil {
		return 0, over
	}
	return a.Patience()
}

// AskerOf returns the Asker of this system with that address and id; nil if there is none.
// over reports whether there was one, as far as the id tells.
func AskerOf(system *actor.ActorSystem, address, id string) (a Asker, over bool) {
	if !strings.HasPrefix(id, AskPrefix) || address != system.Address() {
		return nil, false
	}
	p, found := system.ProcessRegistry.GetLocal(id)
	a, _ = p.(Asker)
	return a, !found
}
