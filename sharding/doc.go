// Package sharding decides where the shards of a type of entities are.
//
// An entity's id belongs to one shard for ever (ShardOf). A Strategy says, as a
// pure function of who is there and who holds what, which host each shard is to
// be on; Plan turns that into the next orders, within limits.
//
//	id ──ShardOf──▶ shard        View ──Strategy.Target──▶ target ──Plan──▶ orders
//
// What hosts shards and routes mail to them stands on this and is not there yet.
package sharding
