package main

// ofSharding are bugs of regions and coordinators.
var ofSharding = []mutant{
	{
		name: "refuser-insisted", does: "a free shard is given to the same node however often that refuses it",
		edits:   []edit{{"sharding/internal/coordinator/decide.go", "l.refused[placing{o.Shard, o.To}] = now + avoidFor", "_ = placing{}"}},
		hunters: []check{shardSim, shardScenarios},
	},
	{
		name: "start-half-way", does: "a node takes shards before its Start has succeeded",
		edits:   []edit{{"sharding/part.go", "if !r.admitted.Load() {", "if false {"}},
		hunters: []check{shardSim},
	},
	{
		name: "strategy-awaited", does: "the strategy is waited for however long it takes",
		edits:   []edit{{"sharding/internal/coordinator/coordinator.go", "case k.now >= q.until:", "case false:"}},
		hunters: []check{shardSim},
	},
	{
		name: "forged-start", does: "a user's Started is delivered",
		edits:   []edit{{"internal/wire/life.go", "case *actor.Started, *actor.Stopping,", "case *actor.Stopping,"}},
		hunters: []check{shardSim},
	},
	{
		name: "failure-unheard", does: "the parent of a shard's entities does not end one that failed",
		edits:   []edit{{"sharding/guardian.go", "g.failed(m.Who, m.Reason)", "_ = m"}},
		hunters: []check{shardSim},
	},
	{
		name: "loss-waits-its-turn", does: "what is hosted is shut off for a lost membership when the control loop comes to it",
		edits:   []edit{{"sharding/hosting.go", "\t\t\ts.shutOffAllLocked(cause)\n", ""}},
		hunters: []check{shardSim},
	},
	{
		name: "unborn-awaited", does: "a shard that is to move waits for Props that do not return",
		edits:   []edit{{"sharding/internal/entities/life.go", "if now.Lost && l.Gate {", "if now.Lost && l.Gate {\n\t\t\treturn l, []Effect{Lose}\n\t\t}\n\t\tif l.GivenUp {"}},
		hunters: []check{shardSim},
	},
	{
		name: "door-of-the-past", does: "a Region's PID leads to the Region it was first used for",
		edits:   []edit{{"sharding/frontdoor.go", "next != nil && next != r {", "next != nil && next != r && false {"}},
		hunters: []check{shardSim},
	},
	{
		name: "events-displace-letters", does: "where a subscriber hangs, the events of many shards leave dead letters no room",
		edits:   []edit{{"internal/outside/outside.go", "w.waits[k] >= Limit", "len(w.waiting) >= Limit"}},
		hunters: []check{{"sharding", "^TestEventsOfManyShards"}},
	},
}
