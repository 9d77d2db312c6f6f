package main

// ofEngine are bugs of the lease engine.
var ofEngine = []mutant{
	{
		name: "child-alone", does: "a term does not look at the one it hangs on",
		edits:   []edit{{"lease/term.go", "p != nil; p = p.parent", "p != nil; p = nil"}},
		hunters: []check{parentsSim, {"lease", "^TestAChild"}},
	},
	{
		name: "child-unconditioned", does: "a claim that settles is made whatever it hangs on",
		edits:   []edit{{"lease/settle.go", "While: o.while()}", "}\n\t\t\tif !o.unknown {\n\t\t\t\tclaims[i].While = o.while()\n\t\t\t}"}},
		hunters: []check{parentsSim},
	},
	{
		name: "leader-alone", does: "leadership does not hang on the membership",
		edits:   []edit{{"membership/election.go", "append(g.leaseOptions(nil), g.AsParent())...", "g.leaseOptions(nil)..."}},
		hunters: []check{{"membership", "^TestLeadershipEndsWithMembership$"}},
	},
	{
		name: "child-under-nobody", does: "a claim is made whatever the record of the parent",
		edits:   []edit{{"lease/parent.go", "if o.under == nil || !o.h.k.limits.While {", "if o.under == nil || o.h.k.limits.While {"}},
		hunters: []check{parentsSim, {"lease", "^TestSettlingKeepsTheCondition$"}},
	},
	{
		name: "child-of-the-dead", does: "a child is acquired under a term that has ended",
		edits: []edit{
			{"lease/parent.go", "o.under != nil && o.under.CheckAlive() {", "o.under != nil || h.parent.seen > 0 {"},
			{"lease/settle.go", "case o.orphaned():", "case false:"},
		},
		hunters: []check{parentsSim},
	},
	{
		name: "parent-first", does: "a parent is given up before its children",
		edits:   []edit{{"lease/children.go", "\t\tif c.standsLocked() {\n\t\t\tif o.awaits == nil {", "\t\tif c.standsLocked() && c.parent == nil {\n\t\t\tif o.awaits == nil {"}},
		hunters: []check{parentsSim, {"lease", "^TestAParentIsGivenUpAfterItsChildren$"}},
	},
	{
		name: "grandparent-first", does: "a parent waits for its children, and not for theirs",
		edits:   []edit{{"lease/children.go", "\t\tif c.standsLocked() {\n\t\t\treturn true", "\t\tif c.standsLocked() && c.parent == nil {\n\t\t\treturn true"}},
		hunters: []check{parentsSim},
	},
	{
		name: "child-at-work-ignored", does: "a parent waits for requests about its children, and not for their work",
		edits:   []edit{{"lease/children.go", "if h.status != free || h.op != nil {", "if h.op != nil {"}},
		hunters: []check{parentsSim},
	},
	{
		name: "release-lies", does: "a release that waits for children is confirmed when its time is over",
		edits:   []edit{{"lease/children.go", "o.finish(false, unknown(err))", "o.finish(false, nil)"}},
		hunters: []check{parentsSim, {"lease", "^TestAChildThatIsNotReleased$"}},
	},
	{
		name: "transfer-stays", does: "a transfer that waits for children is sent though it was said to be refused",
		edits:   []edit{{"lease/children.go", "\t\to.awaits = nil\n\t\tk.endOpLocked(o, false, fmt", "\t\to.finish(false, fmt"}},
		hunters: []check{{"lease", "^TestAChildThatIsNotReleased$"}},
	},
	{
		name: "closed-parent-reconciled", does: "a closed parent that waits for its children is released as nobody's",
		edits:   []edit{{"lease/reconcile.go", "h.op != nil && h.op.held.Token == rec.Token", "h.op == nil"}},
		hunters: []check{{"lease", "^TestAClosedParentIsKeptForItsChildren$"}},
	},
	{
		name: "orphan-kept", does: "what is won after the parent has ended is kept",
		edits:   []edit{{"lease/settle.go", "case o.orphaned():", "case false:"}},
		hunters: []check{parentsSim, {"lease", "^TestAnAcquisitionThatOutlasts"}},
	},
	{
		name: "runs-share-a-term", does: "calls of Run for one lease do not take turns",
		edits:   []edit{{"lease/run.go", "\tdefer end()\n", "\tend()\n"}},
		hunters: []check{leaseSim},
	},
	{
		name: "caller-ends-unsettled", does: "an attempt on the goroutine of its caller is settled only if that goes on",
		edits:   []edit{{"lease/direct.go", "\t\tsettle(v, err)\n\t}()\n\tv, err = f(bear(ctx, caller))\n", "\t}()\n\tv, err = f(bear(ctx, caller))\n\tsettle(v, err)\n"}},
		hunters: []check{leaseSim},
	},
	{
		name: "logs-on-the-engine", does: "loggers and meters are called at once, with the lock held",
		edits:   []edit{{"internal/teller/teller.go", "func (t *Teller) Tell(f func()) {\n", "func (t *Teller) Tell(f func()) {\n\tif true {\n\t\tf()\n\t\treturn\n\t}\n"}},
		hunters: []check{leaseSim},
	},
	{
		name: "logs-on-the-loop", does: "loggers of managers, Regions and groups are called at once",
		edits:   []edit{{"internal/teller/logger.go", "\tc.t.Tell(func() {\n", "\tsurvives(func() {\n"}},
		hunters: []check{singletonSim, shardSim},
	},
	{
		name: "meters-on-the-loop", does: "instruments of Regions are called at once",
		edits:   []edit{{"sharding/metrics.go", "{ r.meters.Do(f) }", "{ f(r.metrics) }"}},
		hunters: []check{shardSim},
	},
	{
		name: "deletion-forgotten", does: "a win is held though its record is known to be deleted",
		edits:   []edit{{"lease/settle.go", "case rec.Token <= o.gone:", "case false:"}},
		hunters: []check{leaseSim},
	},
	{
		name: "bad-is-free", does: "a name under which stands what is no record is taken for free",
		edits: []edit{
			{"lease/settle.go", "\t\t\tfound[r.Name] = r\n", "\t\t\tif !r.bad() {\n\t\t\t\tfound[r.Name] = r\n\t\t\t}\n"},
			{"lease/reconcile.go", "found[rec.Name] = Record{Name: rec.Name}", ""},
		},
		hunters: []check{leaseSim},
	},
	{
		name: "suspects-starve", does: "names are not looked at where the listing comes to no end",
		edits:   []edit{{"lease/reconcile.go", "if l, err = r.mine(behind); err != nil {", "if l, err = r.mine(behind); errors.Is(err, ErrUnsupported) {"}},
		hunters: []check{leaseSim},
	},
	{
		name: "overtaken-believed", does: "a renewal that another has overtaken ends the session",
		edits:   []edit{{"lease/pool.go", "case sent.Mono < s.renewed:", "case false:"}},
		hunters: []check{leaseSim, {"lease", "^TestAnOvertaken"}}, // it slipped through one of eight runs of the simulation
	},
	{
		name: "long-attempts", does: "a session of a short TTL is renewed by requests that take longer",
		edits:   []edit{{"lease/config.go", "\tif ttl >= c.TTL {\n\t\treturn c.AttemptTimeout", "\tif true {\n\t\treturn c.AttemptTimeout"}},
		hunters: []check{leaseSim},
	},
	{
		name: "offer-unchecked", does: "what no record can be made of is transferred to",
		edits:   []edit{{"lease/handle.go", "if err := o.Validate(); err != nil {", "if err := o.Validate(); err != nil && false {"}},
		hunters: []check{leaseSim},
	},
	{
		name: "release-hides-loss", does: "a term that expired unnoticed counts as released",
		edits:   []edit{{"lease/ops.go", "\t\tif !h.CheckAlive() {\n\t\t\tk.loseLocked(h, ErrExpired)\n\t\t}\n\t\th.endLocked(givenUp, ErrReleased)", "\t\th.endLocked(givenUp, ErrReleased)"}},
		hunters: []check{leaseSim},
	},
	{
		name: "transferred-given-back", does: "an acquisition that is given back takes what was transferred to an offer with it",
		edits:   []edit{{"lease/settle.go", "return k.recon.claimedLocked(rec) || now != nil", "return now != nil"}},
		hunters: []check{{"lease", "^TestHistoriesOfOffers$"}},
	},
	{
		name: "cut-off-is-certain", does: "what a Close cuts off counts as surely not applied, though it was sent",
		edits:   []edit{{"lease/ops.go", "if o.sent && !errors.Is(why, ErrUnknown) {", "if false {"}},
		hunters: []check{{"lease", "^TestHistoriesOfOffers$"}},
	},
	{
		name: "granted-decides", does: "a term is as old as its record says, by another's time of day",
		edits: []edit{
			{"lease/settle.go", "since: k.clock.Now().Mono, continues", "since: mono(rec.Granted), continues"},
			{"lease/term_info.go", "// origin is what is known", "func mono(t time.Time) time.Duration { return time.Duration(t.UnixNano()) }\n\n// origin is what is known"},
		},
		hunters: []check{leaseSim},
	},
}
