package asker

import (
	"fmt"

	"github.com/holdfast-go/holdfast/lease"
)

// Unaddressed says why nothing passes between the node own and the host: one of them has
// no address. Empty if both have one, if they are one node, and if there is no host.
func Unaddressed(own, host lease.Owner) string {
	switch {
	case host.Incarnation == "" || host.Incarnation == own.Incarnation:
		return ""
	case own.Address == "":
		return fmt.Sprintf("this node has no address and exchanges nothing with the host %.64q", host.ID)
	case host.Address == "":
		return fmt.Sprintf("the host %.64q has no address", host.ID)
	}
	return ""
}
