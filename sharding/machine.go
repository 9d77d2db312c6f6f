package sharding

import (
	"github.com/holdfast-go/holdfast/internal/handover"
)

// Phase is where a node stands with a shard. The package documentation has the
// diagram; the transitions are those of handover.Machine, which the coordinator's orders
// drive.
type Phase uint8

const (
	// Away: the shard's lease is not this node's.
	Away = Phase(handover.Away)
	// Acquiring: ordered to host it; one Acquire is under way.
	Acquiring = Phase(handover.Acquiring)
	// Offering: the shard's host invited this node to take over; an offer is being
	// made.
	Offering = Phase(handover.Offering)
	// Offered: the host has the offer, and may hand the lease over.
	Offered = Phase(handover.Offered)
	// Adopting: what was handed over is being taken up.
	Adopting = Phase(handover.Adopting)
	// Opening: the lease is this node's, and the shard is about to be opened.
	Opening = Phase(handover.Opening)
	// Active: the shard's entities run here.
	Active = Phase(handover.Active)
	// Inviting: they run here, and another node is asked to take over.
	Inviting = Phase(handover.Inviting)
	// Draining: a planned end: the entities were told to stop, the lease is kept.
	Draining = Phase(handover.Draining)
	// Asking: there are no entities any more; the offer is too old, and a new one is
	// asked for.
	Asking = Phase(handover.Asking)
	// Transferring: there are no entities; the lease is being handed over.
	Transferring = Phase(handover.Transferring)
	// Yielding: entities do not stop; they are shut off, and the lease will be given
	// up though they still run.
	Yielding = Phase(handover.Yielding)
	// Stopping: the lease was lost, or yielded; the entities were told to stop.
	Stopping = Phase(handover.Stopping)
	// Releasing: there are no entities; the lease is being given up.
	Releasing = Phase(handover.Releasing)
)

// String returns the phase's name in lower case.
func (p Phase) String() string { return handover.Phase(p).String() }
