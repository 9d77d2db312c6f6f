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
//     node. What falls out goes to the dead letters and is counted, and its sender is told.
//     Mail that is lost with a link is counted (Info.Unconfirmed).
//
// What no lease can promise holds here as well: a handler that was running when the
// deadline passed acts late. Give Entity.Token to whatever it writes to.
//
// # A shard on a node
//
//	        ordered                won
//	Away ───────────▶ Acquiring ─────────▶ Active ◀────────── declined ──┐
//	 │ ▲                                    │  │ ordered to another      │
//	 │ │ invited                       lost │  └──────────────────▶ Inviting
//	 ▼ │                                    │                            │ an offer came
//	Offering ─▶ Offered ─▶ Adopting ─▶ Active                            ▼
//	                                        │         ended, all     Draining ─too late─▶ Yielding
//	                                        ▼                            │ ended, all       │
//	                                    Stopping ─ended, all─▶ Releasing │            after a TTL
//	                                        ▲                      ▲     ▼                  │
//	                                        │                      └─ Transferring ─▶ Away  │
//	                                        └───────────────────────────────────────────────┘
//
// handover.Machine has all of it as a pure function, and a test walks every order of
// events; package entities does the same for each entity of a shard. A lease is given up
// only when its entities have ended, hosting.ReleaseAfterTTL aside (Yielding). If the offer
// is too old by then, a new one is asked for before the lease is transferred (Asking).
//
// # The coordinator
//
// It is where the group's leader is, if that hosts the type. What it knows are the
// records of leases and the members of the group, as every node knows them; a
// placement.Strategy, a pure function, makes of it where each shard is to be, and the
// coordinator the next orders within MoveLimits. An order bears the coordinator's token
// and the shard's; a node refuses one that is not about the present. What is true is what the
// leases say: an order that is lost, late, or made twice changes nothing for safety.
//
//	id ──ShardOf──▶ shard        View ──Strategy.Target──▶ target ──Plan──▶ orders
//
// A coordinator's node that is not the one with the most recent token can still send
// what it decided before; regions and the store refuse it.
//
// # Who calls whom
//
//	Tell, Ask, Ref ──────▶ Region ──entity active here─────────────────────▶ its gate
//	                          │  └─▶ shard: Router (internal/route) ─▶ entry ─▶ its gate
//	other nodes ─▶ frontDoor ─┘         │                                │ starts, stops, takes mail back:
//	other nodes ◀─ internal/transport ◀─┘ (the short way)                │ internal/entities, guardian
//	control loop ─▶ handover.Machine ─▶ hosting, hand-over, states                ▼
//	   ▲  ▲                                                 guardian: parent of a shard's entities
//	   │  └ Order ◀── internal/coordinator ──▶ the user's Strategy, beside it all
//	   │                      ▲
//	   └ internal/directory: Table ◀── Keeper.Watch
//
// Mail passes under a shard's lock, on the goroutine that brings it; what goes to other
// nodes, to the dead letters and back to senders leaves when the lock is free. What becomes
// of shards is decided by the control loop alone. Files use what files below them declare;
// internal/doccheck has their order.
package sharding
