package main

// ofSingletons are bugs of singletons.
var ofSingletons = []mutant{
	{
		name: "subscriber-breaks-off", does: "a subscriber of the EventStream panics in the middle of what a manager does",
		edits:   []edit{{"singleton/events.go", "c.world.Publish(e)", "c.system.EventStream.Publish(e)"}},
		hunters: []check{singletonSim},
	},
	{
		name: "failure-told-first", does: "the subscribers hear of a child's failure before it is stopped, on the manager's goroutine",
		edits: []edit{{"internal/outside/outside.go", "\ttold(reason)\n",
			"\ttold(reason)\n\tsystem.EventStream.Publish(&actor.SupervisorEvent{Child: child, Reason: reason, Directive: actor.StopDirective})\n"}},
		hunters: []check{singletonSim},
	},
	{
		name: "stop-asks-nobody-else", does: "a manager that is stopped while it asks a node asks none that it would not have asked before",
		edits:   []edit{{"singleton/handover.go", "!c.inv.all && c.closing() {", "false {"}},
		hunters: []check{candidateSim},
	},
	{
		name: "props-not-tried-again", does: "a child that could not be made is not made again",
		edits:   []edit{{"singleton/machine.go", "s.phase = Backoff\n\ts.add(startBackoff)", "s.phase = Backoff"}},
		hunters: []check{singletonSim, {"singleton", "^TestExplore$"}},
	},
	{
		name: "props-on-the-manager", does: "a child is made on the goroutine of its manager, which its Props may hold up or end",
		edits: []edit{{"singleton/making.go", "outside.Aside(func() (struct{}, error) {\n\t\treturn struct{}{}, g.Spawn(",
			"outside.Then(func() (struct{}, error) {\n\t\treturn struct{}{}, g.Spawn("}},
		hunters: []check{singletonSim},
	},
	{
		name: "known-when-spawned", does: "an actor is known only when its spawn has returned, though its Started runs",
		edits:   []edit{{"internal/gate/lifecycle.go", "\tm.known() //", "\t//"}},
		hunters: []check{singletonSim},
	},
	{
		name: "unreleased-unsaid", does: "a manager that ends says nothing of a lease that was not released",
		edits:   []edit{{"singleton/start.go", "m.left = fmt.Errorf(", "_ = fmt.Errorf("}},
		hunters: []check{singletonSim},
	},
	{
		name: "start-keeps-lease", does: "a start that fails keeps the lease's name",
		edits:   []edit{{"singleton/start.go", "_ = h.Close(context.Background()) // never used: nothing to release", "_ = h"}},
		hunters: []check{singletonSim},
	},
	{
		name: "last-lingers", does: "the last node waits for who might take over what is left",
		edits:   []edit{{"singleton/end.go", "if c.last() {", "if false && c.last() {"}},
		hunters: []check{singletonSim},
	},
	{
		name: "parts-stopped", does: "StopAll stops the coordinator of a sharded type, which is its Region's to end",
		edits:   []edit{{"singleton/start.go", "actors.PartsOf(system).Has(name)", "false && actors.PartsOf(system).Has(name)"}},
		hunters: []check{{"sharding", "^TestScenario11"}},
	},
	{
		name: "metadata-replaced", does: "of metadata that is given twice the first is lost",
		edits:   []edit{{"lease/config.go", "o.metadata = merged(o.metadata, m)", "o.metadata = merged(nil, m)"}},
		hunters: []check{singletonSim},
	},
	{
		name: "description-takes-all", does: "what a manager says in a record takes the place of what the user says there",
		edits:   []edit{{"lease/describe.go", "return merged(h.metadata, h.about)", "return h.about"}},
		hunters: []check{singletonSim},
	},
	{
		name: "description-handed-over", does: "a record that is transferred says of the new owner what the old one said of itself",
		edits:   []edit{{"lease/describe.go", "return merged(h.metadata, nil)", "return h.metadataLocked()"}},
		hunters: []check{singletonSim},
	},
	{
		name: "next-version-refused", does: "a host of the next version is not talked to in a rolling upgrade",
		edits:   []edit{{"internal/agree/agree.go", "there > wire.Protocol+1", "there > wire.Protocol"}},
		hunters: []check{singletonSim},
	},
	{
		name: "settings-not-compared", does: "a host's settings are not looked at",
		edits:   []edit{{"singleton/agree.go", "what.differs = said.Differs(r, p.agreement())", "what.differs = \"\""}},
		hunters: []check{singletonSim},
	},
	{
		name: "far-version-believed", does: "a host of whatever version is talked to",
		edits:   []edit{{"internal/agree/agree.go", "there > wire.Protocol+1 || there < wire.Protocol-1", "false"}},
		hunters: []check{{"singleton", "^TestHistoriesOfVersions$"}},
	},
	{
		name: "host-not-announced", does: "a host under a bare lease does not say where it is after the first child",
		edits:   []edit{{"singleton/making.go", "\t\tc.announce()\n", "\t\tif c.proxy.lives == 1 {\n\t\t\tc.announce()\n\t\t}\n"}},
		hunters: []check{{"singleton", "^TestHistoriesUnderBareLeases$"}},
	},
	{
		name: "candidate-lost-with-link", does: "a host forgets a node whose link broke, and a node introduces itself once",
		edits: []edit{
			{"singleton/candidates.go", "\t\tx.broke = true\n\t\tc.candidates[address] = x\n", "\t\tdelete(c.candidates, x.node.Address)\n"},
			{"singleton/candidates.go", "c.proxy.post(&introduceDue{})", "_ = &introduceDue{}"},
			{"singleton/candidates.go", "return x.again > 0 && now-x.heard > 3*x.again", "return false"},
		},
		hunters: []check{singletonSim, candidateSim},
	},
	{
		name: "dead-candidates-asked-first", does: "nodes that died while they waited are asked before those that live",
		edits: []edit{
			{"singleton/candidates.go", "x.broke || x.again > 0 && now-x.heard > x.again*3/2", "false"},
			{"singleton/candidates.go", "return x.again > 0 && now-x.heard > 3*x.again", "return false"},
			{"singleton/candidates.go", "cmp.Compare(b.heard, a.heard)", "cmp.Compare(a.heard, b.heard)"},
		},
		hunters: []check{candidateSim},
	},
	{
		name: "state-given-up-untold", does: "nothing is told of a state that no node takes over",
		edits:   []edit{{"singleton/child.go", "c.states.forgo()", "_ = c.states"}},
		hunters: []check{candidateSim},
	},
	{
		name: "former-host-leaves-early", does: "where the store can't watch, a former host ends before other nodes have looked",
		edits:   []edit{{"singleton/end.go", "handover.QuietPeriod + max(0, since+c.newsWithin()-c.now())", "handover.QuietPeriod + 0*since"}},
		hunters: []check{{"singleton", "^TestAFormerHostForwards"}, singletonSim},
	},
	{
		name: "released-leaves-early", does: "a former host that could only release ends before other nodes have looked",
		edits:   []edit{{"singleton/end.go", " || len(c.certain()) > 0)", ")"}},
		hunters: []check{{"singleton", "^TestAHostThatReleased"}},
	},
	{
		name: "former-host-looks-for-none", does: "a former host that can't follow the record does not look for the next one on behalf of others' mail",
		edits:   []edit{{"singleton/proxy.go", "	p.lookUp() // it may wait here for the next host\n", ""}},
		hunters: []check{{"singleton", "^TestAFormerHostLooks"}},
	},
	{
		name: "looks-again-late", does: "who found nobody else to host looks again only after a second, as long as order is kept for",
		edits:   []edit{{"singleton/proxy.go", "pause = lookUpEvery / 4", "pause = lookUpEvery"}},
		hunters: []check{{"singleton", "^TestAFormerHostLooks"}},
	},
	{
		name: "late-find-believed", does: "a former host believes what it found when it looked for the next one, though it has heard of a later one since",
		edits:   []edit{{"singleton/handover.go", "m.heard == c.proxy.heard && m.moved == c.movedAt && c.term == nil && ", ""}},
		hunters: []check{{"singleton", "^TestAHostThatIsFoundLate"}},
	},
}
