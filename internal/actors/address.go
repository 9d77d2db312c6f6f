package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
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
