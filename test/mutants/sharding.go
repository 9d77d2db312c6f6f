package main

var ownLease = check{"sharding", "^TestHistoriesWithALeaseOfItsOwn$"}

// ofSharding are bugs of regions and coordinators.
var ofSharding = []mutant{
	{
		name: "refuser-insisted", does: "a free shard is given to the same node however often that refuses it",
		edits:   []edit{{"sharding/internal/coordinator/decide.go", "l.refused[placing{o.Shard, o.To}] = now + avoidFor", "_ = placing{}"}},
		hunters: []check{shardSim, shardScenarios},
	},
	{
		name: "start-half-way", does: "a node takes shards before its Start has succeeded",
		edits:   []edit{{"sharding/region.go", "if !r.admitted.Load() {", "if false {"}},
		hunters: []check{shardSim},
	},
	{
		name: "strategy-awaited", does: "the strategy is waited for however long it takes",
		edits:   []edit{{"sharding/internal/coordinator/coordinator.go", "case now >= q.until:", "case false:"}},
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
		name: "shards-stand-alone", does: "a shard's lease hangs on nothing",
		edits:   []edit{{"sharding/handles.go", "append(c.options(directory.Metadata(c.typ.Shards, true)), lease.WithParent(c.regionLease))...", "c.options(directory.Metadata(c.typ.Shards, true))..."}},
		hunters: []check{shardSim, shardScenarios},
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
		name: "still-for-ever", does: "a coordinator that found nothing to do looks at no change of the shards",
		edits: []edit{{"sharding/internal/coordinator/coordinator.go", "c.still.version == c.env.Table.Version()",
			"true"}},
		hunters: []check{shardCalm, shardSim},
	},
	{
		name: "still-with-other-hosts", does: "a coordinator that found nothing to do looks at no change of the hosts",
		edits: []edit{{"sharding/internal/coordinator/coordinator.go",
			"reflect.DeepEqual(c.still.view.Hosts, c.ledger.view(c.present()).Hosts)", "(true || reflect.DeepEqual(0, 0))"}},
		hunters: []check{shardCalm, shardSim},
	},
	{
		name: "events-displace-letters", does: "where a subscriber hangs, the events of many shards leave dead letters no room",
		edits:   []edit{{"internal/outside/outside.go", "w.waits[k] >= Limit", "len(w.waiting) >= Limit"}},
		hunters: []check{{"sharding", "^TestEventsOfManyShards"}},
	},
	{
		name: "late-taken-for-hung", does: "where a subscriber is late, as on a busy machine, dead letters are dropped",
		edits:   []edit{{"internal/outside/outside.go", "if left <= 0 {", "if left <= time.Second {"}},
		hunters: []check{{"internal/outside", "^TestOneThatReturnsLate"}},
	},
	{
		name: "slow-waited-for-again", does: "where a subscriber is slow, what comes waits for it again and again",
		edits:   []edit{{"internal/outside/outside.go", "w.waits[k] < Limit/2 {", "true {"}},
		hunters: []check{{"internal/outside", "^TestOneThatIsSlow"}},
	},
	{
		name: "slow-without-bound", does: "behind a subscriber that returns each time, and takes less than comes, any number waits",
		edits:   []edit{{"internal/outside/outside.go", " || w.waits[k] >= Most {", " {"}},
		hunters: []check{{"internal/outside", "^TestMoreThanOne"}},
	},
	{
		name: "world-without-goroutine", does: "a subscriber that ends its goroutine ends all that is told",
		edits:   []edit{{"internal/outside/outside.go", "if !over {", "if false && !over {"}},
		hunters: []check{{"internal/outside", "^TestWhatIsTold"}},
	},
	{
		name: "dispatcher-under-lock", does: "a dispatcher of users' is called where mail is posted, with the shard locked",
		edits:   []edit{{"sharding/guardian.go", "Aside:    true,", "Aside:    false,"}},
		hunters: []check{shardSim},
	},
	{
		name: "codec-on-the-link", does: "a codec of users' that reads is waited for by the link, however long it takes",
		edits: []edit{
			{"sharding/frontdoor.go", "s.openInTime(m)", "s.open(m)"},
			{"singleton/door.go", "d.p.read(e)", "wire.Default.Open(e)"},
		},
		hunters: []check{{"sharding", "^TestACodec"}, {"singleton", "^TestACodec"}},
	},
	{
		name: "departure-to-the-past", does: "with a coordinator's lease of the user's, a node tells that it leaves to the sender of its last orders",
		edits: []edit{{"sharding/coordinate.go", "\tcase r.set.coordinator != nil:\n", "\tcase false:\n"},
			{"sharding/leave.go", "c.tellCoordinator(c.departure(false))", "c.tellCoordinator(c.departure(false))\n\tif c.lastOrder != nil {\n\t\tc.send(c.lastOrder.From.Address, c.departure(false))\n\t}"}},
		hunters: []check{ownLease},
	},
	{
		name: "late-order-obeyed", does: "with a coordinator's lease of the user's, orders of a former coordinator are obeyed",
		edits:   []edit{{"sharding/orders.go", "\tcase c.set.coordinator == nil:\n\t\tc.highest", "\tcase true:\n\t\tc.highest"}},
		hunters: []check{ownLease},
	},
	{
		name: "lease-panics-through", does: "a lease of the user's that panics when it is asked ends the process",
		edits:   []edit{{"lease/asked.go", "if !returned {", "if returned {"}},
		hunters: []check{{"sharding", "^TestACoordinatorsLeaseThatPanics"}, {"singleton", "^TestALeaseThatCanNeverBeAsked"}},
	},
	{
		name: "token-of-another-lease", does: "with a coordinator's lease of the user's, orders are held against the token of a record of the default one",
		edits:   []edit{{"sharding/region.go", "if r.set.coordinator == nil {", "if true {"}},
		hunters: []check{ownLease},
	},
	{
		name: "highest-for-ever", does: "a node holds orders against those of a coordinator whose lease's store has lost its data",
		edits:   []edit{{"sharding/orders.go", "c.clock.Now().Mono-c.heard < heardFor*c.leaseTTL()", "true"}},
		hunters: []check{ownLease},
	},
	{
		name: "late-stranger-obeyed", does: "after a time without orders, nodes obey a former coordinator that is no member",
		edits: []edit{{"sharding/orders.go",
			"return !slices.ContainsFunc(c.group.Members().Members, of)", "return false && !slices.ContainsFunc(c.group.Members().Members, of)"}},
		hunters: []check{{"sharding", "^TestAnOrderOfAnEarlierCoordinator"}},
	},
}
