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
		name: "props-not-tried-again", does: "a child that could not be made is not made again",
		edits:   []edit{{"singleton/machine.go", "return m.to(Backoff, startBackoff)\n\t\tcase lost: // before there was a child", "return m.to(Backoff)\n\t\tcase lost: // before there was a child"}},
		hunters: []check{singletonSim, {"singleton", "^TestExplore$"}},
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
		name: "host-not-announced", does: "a host under a bare lease does not say where it is after the first child",
		edits:   []edit{{"singleton/child.go", "\t\tc.announce()\n", "\t\tif c.proxy.lives == 1 {\n\t\t\tc.announce()\n\t\t}\n"}},
		hunters: []check{{"singleton", "^TestHistoriesUnderBareLeases$"}},
	},
}
