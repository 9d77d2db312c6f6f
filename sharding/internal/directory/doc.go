// Package directory is what a node knows of a type of entities without asking anybody: how
// its leases are called, which shard an id belongs to, and, by the records of the leases
// (Table), who holds each shard, who takes part, and who coordinates.
//
//	Keeper.Watch ─▶ Table ─▶ the control loop (Config.Shard, Coordinator, Reset), in the order of changes
//	                  │  └─▶ OnChange: the coordinator, who is to coordinate
//	                  └───── asked by all who route, decide and tell
package directory
