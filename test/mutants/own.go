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
	{
		name: "provider-unmarked", does: "a lease by an owner's name is given up without a mark, so that a late request ends what the owner holds again",
		edits:   []edit{{"lease/provider/call.go", ", givingKey: \"yes\"}", "}"}},
		hunters: []check{{"lease/provider", "^TestHistories$"}},
	},
	{
		name: "provider-gap", does: "a transfer between owners leaves a gap though Atomic says that it does not",
		edits:   []edit{{"lease/provider/call.go", "case !c.p.Atomic():", "case true:"}},
		hunters: []check{{"lease/provider", "^TestHistories$"}},
	},
	{
		name: "provider-renews-blindly", does: "an owner that renews does not look whether the record still stands",
		edits:   []edit{{"lease/provider/call.go", "if !stands || now.Held() != r.Held() {", "if false {"}},
		hunters: []check{{"lease/provider", "^TestHistories$"}},
	},
	{
		name: "provider-shortens-at-once", does: "a claim for less time is not announced: one that lands late ends what was renewed for longer",
		edits:   []edit{{"lease/provider/call.go", "case own && !marked && !asked:", "case false:"}},
		hunters: []check{{"lease/provider", "^TestWhatLandsLate$"}},
	},
	{
		name: "provider-keeps-token", does: "a lease by an owner's name keeps its token over a change of owner",
		edits:   []edit{{"lease/provider/provider.go", "Incarnation: incarnation + owner", "Incarnation: incarnation"}},
		hunters: []check{{"lease/provider", "^TestHistories$"}, {"lease/provider", "^TestHistoriesWithoutTransfers$"}},
	},
	{
		name: "provider-shares-sessions", does: "what an owner claims goes under a session that somebody may be closing",
		edits:   []edit{{"lease/provider/provider.go", "lease.SessionID(rand.Int64N(1<<63-1) + 1)", "lease.SessionID(len(o.ID) + rand.IntN(1))"}},
		hunters: []check{{"lease/provider", "^TestASessionThatIsClosedLate$"}},
	},
}
