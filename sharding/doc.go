// Package sharding runs many actors, the entities of a type, each of which runs in one place
// at a time: an account, a device, a session. An entity has an id, starts with the first
// message to it, and is reached from every node.
//
//	region, err := sharding.Start(system, group, sharding.Type{Name: "account", Props: account, Shards: 256})
//	err = region.Tell("alice", Deposit{100})
//	balance, err := sharding.Ask[Balance](ctx, region, "alice", GetBalance{})
//	err = region.Stop(ctx) // moves its shards to the others first
//
// An id belongs to one of a fixed number of shards (ShardOf). A shard is a lease,
// "shard/<group>/<type>/<n>", and its holder runs its entities. One coordinator for each
// type, a singleton, orders nodes to host shards. The package promises:
//
//   - An entity processes nothing unless its shard's lease is alive, by a clock reading taken
//     for that very message. So no entity runs twice, whatever the coordinator does: a
//     partitioned node stops by its own clock before another may start.
//   - A planned move (a node joins, leaves, or is drained) loses no message, doubles none, and
//     keeps the order of each sender's messages to an entity, while links live and no bound
//     is exceeded. Passivation loses none either.
//   - A remembered entity (WithRemember) starts again wherever its shard goes.
//   - Without a coordinator traffic goes on; only moves wait. An order that is lost, late or
//     repeated is safe: the leases decide.
//   - Nodes that differ on the number of shards never work at the same time.
//   - Every buffer, retry and wait is bounded. A message that exceeds a bound goes to the dead
//     letters and is counted, and its sender hears of it. Mail lost with a link is counted
//     (Info.Unconfirmed).
//
// No lease can stop a handler that was running when the deadline passed: give Entity.Token to
// every store that it writes to. docs/sharding.md has all of this at length.
//
//	Tell, Ask, Ref ──▶ Region ──ShardOf──▶ shard ──┬──▶ gate ──▶ entity      this node holds the shard
//	                                               ├──▶ another Region       another node does
//	                                               └──▶ buffer               no host known, or no room
//	coordinator ──orders──▶ Regions                   placement.Strategy decides which
package sharding
