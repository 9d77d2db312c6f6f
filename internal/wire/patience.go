package wire

import (
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// askPrefix is how the ids of questions begin: of processes that wait for one answer. What
// an actor called "ask" spawns begins so, too.
const askPrefix = "ask/"

// lifeSize is how much of its system's ID a question's id has, in bytes.
const lifeSize = 8

// lifeOf is what a question's id has of the life of its system, 8 digits to the base 57: a
// late answer to an earlier life at this address must not be taken for this one's, nor an
// actor's child for a question. Ids travel with every question and answer, so it is short.
func lifeOf(system *actor.ActorSystem) string { return system.ID[:min(lifeSize, len(system.ID))] }

// NextAskID returns an id for a question of system.
func NextAskID(system *actor.ActorSystem) string {
	return askPrefix + lifeOf(system) + system.ProcessRegistry.NextId()
}

// IsAskID reports whether id has the form of a question's, of any system.
func IsAskID(id string) bool {
	rest, ok := strings.CutPrefix(id, askPrefix)
	return ok && strings.IndexByte(rest, '$') == lifeSize
}

// Asker is a process that waits for an answer for a time.
type Asker interface {
	actor.Process
	// Patience returns for how long it goes on waiting; ok is false if that is not
	// known.
	Patience() (left time.Duration, ok bool)
	// Unconfirmed says that the question is not known to have been sent: no answer to it is
	// to be expected. It never blocks.
	Unconfirmed()
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
// over reports whether there was one: only questions of this life have such ids.
func AskerOf(system *actor.ActorSystem, address, id string) (a Asker, over bool) {
	rest, ok := strings.CutPrefix(id, askPrefix)
	if !ok || !strings.HasPrefix(rest, lifeOf(system)) || address != system.Address() {
		return nil, false
	}
	p, found := system.ProcessRegistry.GetLocal(id)
	a, _ = p.(Asker)
	return a, !found
}
