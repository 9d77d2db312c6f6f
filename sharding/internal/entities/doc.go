// Package entities is what becomes of an entity on the node that hosts its shard, as a pure
// function: phases, events and effects. Package sharding carries the effects out, with the
// shard locked.
//
//	            remembered             made
//	Remembering ─────────▶ Starting ─▶ Making ─▶ Active ──passivated, shard ends──▶ Stopping ──▶ Collecting
//	                          ▲  ▲                  └────── ended by itself ──────────────────────▲ │
//	                          │  └── Backoff ◀── panicked ──────────────────────────────────────────┤
//	                          └───────────────── mail came meanwhile ───────────────────────────────┤
//	                                                                                   none: Gone ◀─┘
//
// While its actor is being made an entity is given up if its shard is not to wait any longer:
// it is Gone then, and the actor, if it begins after all, is stopped.
package entities
