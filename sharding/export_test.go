package sharding

import "github.com/holdfast-go/holdfast/sharding/internal/coordinator"

// AskStrategy has the coordinator, if it is on this node, ask its strategy at once.
func (r *Region) AskStrategy() { r.coordinating((*coordinator.Coordinator).Changed) }
