// Package sharding runs many actors, the entities of a type, each of which runs in
// one place at a time: an account, a device, a session. An entity is named by an
// id, starts with the first message to it, and is reached from every node.
//
//	region, err := sharding.Start(system, group, sharding.Type{Name: "account", Props: account, Shards: 256})
//	err = region.Tell("alice", Deposit{100})
//	balance, err := sharding.Ask[Balance](ctx, region, "alice", GetBalance{})
//	err = region.Stop(ctx) // moves its shards to the others first
//
// An id belongs to one of a fixed number of shards for ever (ShardOf). A shard is a
// lease, "shard/<group>/<type>/<n>", and who holds it runs its entities. One
// coordinator for each type, a singleton, says who is to hold what.
//
// # What it promises
//
//   - An entity processes nothing unless its shard's lease is alive, by a clock
//     reading taken for that very message. So no entity runs twice, whatever the
//     coordinator does or believes: a partitioned node stops by its own clock before
//     another may start.
//   - A planned move (a node joins, leaves, or is drained) loses no message, doubles
//     none, and keeps the order of what one sender sends to one entity, while links
//     live and no bound is exceeded. See packages internal/route and internal/transport
//     for how.
//   - Passivation loses no message either, and a remembered entity (WithRemember) is
//     started again wherever its shard goes.
//   - With the coordinator down traffic goes on; only moves wait.
//   - Nodes that differ on the number of shards never work at the same time. When the
//     number is changed, what is remembered moves to its new shards before any is
//     assigned; a change that is interrupted is taken up again.
//   - Every buffer, retry and wait is bounded, and so is what is on its way to another
//     node. What falls out goes to the dead letters and is counted, and its sender hears of it.
//     Mail that is lost with a link is counted (Info.Unconfirmed).
//
// What no lease can promise holds here as well: a handler that was running when the
// deadline passed acts late. Give Entity.Token to whatever it writes to.
package sharding
