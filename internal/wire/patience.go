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
	if sender == nil || sender.Address != system.Address() || !strings.HasPrefix(sender.Id, AskPrefix) {
		return 0, false
	}
	p, found := system.ProcessRegistry.GetLocal(sender.Id)
	if !found {
		return 0, true
	}
	if a, is := p.(Asker); is {
		return a.Patience()
	}
	return 0, false
}
