package main

var rememberSim = check{"sharding", "^TestSimulationOfRemembered$"}

// ofShards are bugs of what is remembered, and of nodes that join and leave.
var ofShards = []mutant{
	{
		name: "number-changed-in-place", does: "lists of remembered entities stay as they are when the number of shards changes, and all that a list has is started",
		edits: []edit{
			{"sharding/layout.go", "case len(numbers) == 1 && numbers[0] == own:", "case len(numbers) > 0:"},
			{"sharding/recover.go", "if ValidateEntityID(id) != nil || ShardOf(id, s.r.typ.Shards) != s.number {", "if ValidateEntityID(id) != nil {"},
		},
		hunters: []check{rememberSim},
	},
	{
		name: "strangers-left-behind", does: "after a change of the number of shards nothing is moved to its new list",
		edits:   []edit{{"sharding/layout.go", "case len(numbers) == 1 && numbers[0] == own:", "case len(numbers) > 0:"}},
		hunters: []check{rememberSim},
	},
	{
		name: "move-believed-done", does: "a move of what is remembered counts as done when it begins",
		edits: []edit{{"sharding/layout.go", `	if err := l.update(lock, []string{own}, nil); err != nil {
		return err
	}
`, `	if err := l.update(lock, []string{own}, slices.DeleteFunc(slices.Clone(numbers), func(n string) bool { return n == own })); err != nil {
		return err
	}
`}},
		hunters: []check{rememberSim},
	},
	{
		name: "moves-wait-for-remembered", does: "a coordinator that begins moves no shard before the store of what is remembered has answered",
		edits:   []edit{{"sharding/internal/coordinator/coordinator.go", "\t\tc.tell(&prepared{agreed, nil})\n", ""}},
		hunters: []check{rememberSim},
	},
	{
		name: "free-before-arranged", does: "shards that are free are assigned before it is known where what is remembered of them stands",
		edits:   []edit{{"sharding/internal/coordinator/decide.go", "!(k.arranged && l.assignedOnce)", "!l.assignedOnce"}},
		hunters: []check{rememberSim},
	},
	{
		name: "answer-while-unprepared", does: "what a strategy says is ordered while leases of shards are being taken",
		edits:   []edit{{"sharding/internal/coordinator/question.go", "case !c.inCharge():", "case !c.g.CheckAlive():"}},
		hunters: []check{{"sharding/internal/coordinator", "^TestAnAnswerOrders"}},
	},
	{
		name: "superseded-stays", does: "a node whose ID another has taken keeps its shards",
		edits:   []edit{{"sharding/leave.go", "case due && !d.rival:", "case due && !d.rival && false:"}},
		hunters: []check{rememberSim},
	},
	{
		name: "id-taken-in-silence", does: "a node whose ID another takes does not object",
		edits:   []edit{{"membership/rival.go", "\tg.holders.Go(func() { g.object(ctx, rival) })\n", "\t_ = ctx\n"}},
		hunters: []check{rememberSim},
	},
	{
		name: "askers-left-waiting", does: "who asked over a link that broke waits until its deadline",
		edits:   []edit{{"sharding/port.go", "s.asked.Broke(s.r.clock, address, s.out.Link(address), s.router.MovedFrom(address))", "_ = address"}},
		hunters: []check{shardSim},
	},
	{
		name: "askers-of-others-told", does: "whichever link breaks, who waits for an answer from another node is told that none will come",
		edits: []edit{
			{"internal/asker/inflight.go", "case !moved:", "case true:"},
			{"internal/asker/inflight.go", "return s.to == address && s.link < present", "return true"},
		},
		hunters: []check{shardSim},
	},
	{
		name: "askers-of-the-gone-forgotten", does: "who asked over a link that broke is told only where that host is known to host still",
		edits: []edit{
			{"internal/route/view.go", "return r.phase == open || r.known && r.host", "return r.phase == open || !r.known || r.host"},
			{"internal/asker/inflight.go", "case u.any(address, present):", "case false:"},
		},
		hunters: []check{{"sharding", "^TestAskEndsWhenItsHostVanishes$"}, {"singleton", "^TestAskEnds|^TestAskFails"}},
	},
	{
		name: "askers-not-noted", does: "where a question went that nothing held up is not noted",
		edits:   []edit{{"internal/fastpath/fastpath.go", "		asked.Went(s.System, from, node.Address, m.parcel.Link())\n", ""}},
		hunters: []check{shardSim},
	},
}
