package main

// ofRuns are bugs of what runs work under leases, and of who follows them.
var ofRuns = []mutant{
	{
		name: "pool-one-more", does: "a Pool of n slots has n+1",
		edits: []edit{
			{"lease/slots.go", "busy: make([]bool, n)", "busy: make([]bool, n+1)"},
			{"lease/slots.go", "for i := range n {", "for i := range n + 1 {"},
		},
		hunters: []check{{"lease", "^TestHistoriesOfPools$"}, {"lease", "^TestAPool"}},
	},
	{
		name: "pool-slot-shared", does: "a slot is another's in the same process while its work goes on",
		edits:   []edit{{"lease/slots.go", "\tdefer p.give(i)\n", "\tp.give(i)\n"}},
		hunters: []check{{"lease", "^TestHistoriesOfPools$"}},
	},
	{
		name: "pool-forgets-to-wake", does: "who waits in a process is not woken by a slot that is given back there",
		edits:   []edit{{"lease/slots.go", "\tcase p.freed <- i:\n", ""}},
		hunters: []check{{"lease", "^TestHistoriesOfPools$"}, {"lease", "^TestTheCallsOfAPool"}},
	},
	{
		name: "pool-by-old-news", does: "a slot that was given back here once is taken for free, though it is in use again",
		edits:   []edit{{"lease/slots_take.go", "if p.closed || p.busy[i] {", "if p.closed {"}},
		hunters: []check{{"lease", "^TestHistoriesOfPools$"}},
	},
	{
		name: "once-beside", does: "Once runs without the lease, beside another",
		edits:   []edit{{"lease/once.go", "runTerm(ctx, what, l, func()", "runTerm(ctx, what, Unguarded(nameOf(l)), func()"}},
		hunters: []check{{"lease", "^TestHistoriesOfOnce$"}},
	},
	{
		name: "once-unasked", does: "Once does not ask, under the lease, whether it was done meanwhile",
		edits:   []edit{{"lease/once.go", "\tif err := o.ask(ctx); err != nil {\n\t\treturn err\n\t}\n\tif !t.CheckAlive()", "\tif !t.CheckAlive()"}},
		hunters: []check{{"lease", "^TestHistoriesOfOnce$"}},
	},
	{
		name: "once-old-answer", does: "Once begins by an answer that came before the lease was lost",
		edits:   []edit{{"lease/once.go", "if !t.CheckAlive() {", "if false {"}},
		hunters: []check{{"lease", "^TestOnceDoesNotBeginByAnOldAnswer$"}},
	},
	{
		name: "tryrun-waits", does: "TryRun waits for a lease that another has",
		edits:   []edit{{"lease/tryrun.go", "if err := tryAcquire(ctx, l); err != nil {", "if err := await(ctx, l, nil); err != nil {"}},
		hunters: []check{{"lease", "^TestTryRun"}},
	},
	{
		name: "leads-no-more", does: "RunForever ends with the term, if the work is content",
		edits:   []edit{{"lease/forever.go", "out.loss == nil && out.err == nil,", "out.err == nil,"}},
		hunters: []check{{"lease", "^TestHistoriesOfLeading$"}},
	},
	{
		name: "holder-final-missed", does: "a follower of a holder that is slow is not told of what came meanwhile",
		edits:   []edit{{"lease/holder.go", "\th.pending = false\n\tlatest := h.latest\n", "\tlatest := h.latest\n\tdefer func() { h.pending = false }()\n"}},
		hunters: []check{{"lease", "^TestHistoriesOfHolders$"}, {"lease", "^TestRudeFollowersOfAHolder$"}},
	},
	{
		name: "holder-by-old-deletion", does: "a follower of a holder believes a deletion that is older than what stands",
		edits:   []edit{{"lease/holder.go", "if ev.Revision < h.stands.Record.Token {", "if false {"}},
		hunters: []check{{"lease", "^TestALateDeletionIsNoNews$"}},
	},
	{
		name: "holder-always-known", does: "a follower of a holder is not told that the store does not answer",
		edits:   []edit{{"lease/follow.go", "zap.Error(err))\n\t\tf.lapse()\n", "zap.Error(err))\n"}},
		hunters: []check{{"lease", "^TestFollowHolderTellsWhenItDoesNotKnow$"}},
	},
	{
		name: "runlock-names-collide", does: "two runs of two workflows have one lock",
		edits:   []edit{{"lease/runlock/runlock.go", "lease.Name(\"runlock\", workflow, run)", "lease.Name(\"runlock\", workflow+\"/\"+run)"}},
		hunters: []check{{"lease/runlock", "^TestNamesDoNotCollide$"}},
	},
	{
		name: "runlock-for-a-ttl", does: "a call to the store takes as long as locks live",
		edits:   []edit{{"lease/runlock/lock.go", "\tctx, cancel := context.WithTimeout(ctx, b.timeout)\n\tdefer cancel()\n\treturn b.Handle.Release(ctx)", "\treturn b.Handle.Release(ctx)"}},
		hunters: []check{{"lease/runlock", "^TestNoCallTakesATTL$"}},
	},
	{
		name: "runlock-nests-in-what-is-lost", does: "the hook within another runs under a lock that was lost",
		edits:   []edit{{"lease/runlock/lock.go", "ok && t.CheckAlive() {", "ok {"}},
		hunters: []check{{"lease/runlock", "^TestAroundKeeps|^TestHooksNest$"}},
	},
}
