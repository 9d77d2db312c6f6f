// Package placement decides which host should have each shard of a type. All of it is pure:
// the same input gives the same answer.
//
//	View ──Strategy.Target──▶ target
//	hosts, who holds what      one host for each shard
//
// Balanced gives each host its part by capacity with the fewest moves. StrategyFunc is a
// strategy of your own. sharding.WithStrategy and sharding.WithMoveLimits take them.
//
// A target is a wish. Package sharding asks the strategy again whenever hosts or holders
// change, carries a bounded number of moves out at a time, and hosts a shard only under its
// lease: a strategy that is wrong costs moves, and never has an entity run twice.
package placement
