package main

// ofOwn are bugs that stores and leases of users' bring to light, which can do less than ours.
var ofOwn = []mutant{
	{
		name: "no-transfer-no-target", does: "a node to which a shard can't be transferred, as the store never transfers, counts as one that does not take it",
		edits:   []edit{{"sharding/handoff.go", "if errors.Is(err, lease.ErrUnsupported) {", "if false {"}},
		hunters: []check{{"sharding", "^TestShardsMoveWithoutTransfers$"}},
	},
	{
		name: "panics-every-time", does: "a lease of the user's that panics when it is asked whether it is alive is asked again, by all that its failure brings about",
		edits: []edit{
			{"lease/run.go", "asked(m.l.CheckAlive, m.cancel)", "m.l.CheckAlive()"},
			{"lease/narrow.go", "!asked(t.outer.CheckAlive, t.end) {", "!t.outer.CheckAlive() {"},
		},
		hunters: []check{{"lease", "^TestATermWhoseLeaseCantBeAskedHasEnded$"}},
	},
	{
		name: "won-in-vain-at-once", does: "a lease that is won and is lost before a child has begun is tried again without a pause that grows",
		edits:   []edit{{"singleton/wait.go", "c.inVain && c.phase == Standby", "false"}, {"singleton/term.go", "c.inVain = true //", "c.failures = 0 //"}},
		hunters: []check{{"singleton", "^TestALeaseThatCanNeverBeAsked$"}},
	},
}
