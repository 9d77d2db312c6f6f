package main

// ofRenewal are bugs of the policies by which leases are renewed.
var ofRenewal = []mutant{
	{
		name: "lazy-too-late", does: "a lazy renewal comes past the deadline",
		edits:   []edit{{"lease/renewal.go", "if latest = c.lazyAt(s.TTL); ", "if latest = c.lazyAt(s.TTL) * 6 / 5; "}},
		hunters: []check{leaseSim, {"lease", "^TestWhenPoliciesRenew$"}},
	},
	{
		name: "adaptive-one-attempt", does: "an adaptive renewal leaves time for one attempt",
		edits:   []edit{{"lease/renewal.go", "- 2*(attempt+attempt/10)", "- attempt"}},
		hunters: []check{leaseSim, {"lease", "^TestWhenPoliciesRenew$"}},
	},
	{
		name: "adaptive-deaf", does: "an adaptive renewal does not heed how long answers take",
		edits:   []edit{{"lease/renewal.go", "\ts.slowest = max(d, s.slowest-(s.slowest-d)/8)\n", ""}},
		hunters: []check{{"lease", "^TestAdaptiveAgainstFixed$"}},
	},
	{
		name: "policies-share", does: "leases of all policies share sessions",
		edits:   []edit{{"lease/keeper.go", "of := (sharing{o.ttl, o.renewal});", "of := (sharing{ttl: o.ttl});"}},
		hunters: []check{leaseSim, {"lease", "^TestPoliciesDoNotShareSessions$"}},
	},
	{
		name: "never-renewed", does: "what is not to be renewed is, as by default",
		edits:   []edit{{"lease/renewal.go", "case s.failures > 0, r.Automatic() && s.wanted <= s.renewed:", "case s.failures > 0, s.wanted <= s.renewed:"}},
		hunters: []check{leaseSim, {"lease", "^TestNeverEndsOnTime$"}},
	},
	{
		name: "never-touched", does: "a touch renews what is never to be",
		edits:   []edit{{"lease/renewal.go", "\tcase r.way != onActivity:\n", "\tcase r.way == byHand:\n"}},
		hunters: []check{leaseSim, {"lease", "^TestNeverEndsOnTime$"}},
	},
	{
		name: "never-by-hand", does: "what is never to be renewed is by hand",
		edits:   []edit{{"lease/renew.go", "if h.pool.renewal.way == notAtAll {", "if false {"}},
		hunters: []check{leaseSim, {"lease", "^TestNeverEndsOnTime$"}},
	},
	{
		name: "hand-believed", does: "Renew is content with a renewal of before",
		edits:   []edit{{"lease/renew.go", "for s.renewed < asked {", "for s.renewed < asked && s.renewals.Load() == 0 {"}},
		hunters: []check{leaseSim, {"lease", "^TestRenewByHand$"}},
	},
	{
		name: "term-of-what-is-left", does: "a term that is not renewed begins under the session of the one before",
		edits:   []edit{{"lease/pool.go", "\tif !p.renewal.Automatic() {\n\t\treturn nil\n", "\tif false {\n\t\treturn nil\n"}},
		hunters: []check{{"lease", "^TestATermOfItsOwnHasAWholeTTL$"}},
	},
	{
		name: "lapse-is-a-loss", does: "what ends on time is told as if its renewal had failed",
		edits:   []edit{{"lease/renewal.go", "\treturn ErrLapsed\n", "\treturn ErrExpired\n"}},
		hunters: []check{leaseSim, {"lease", "^TestNeverEndsOnTime$"}},
	},
	{
		name: "touch-unheard", does: "a touch that a renewal waits for does not wake the loop",
		edits:   []edit{{"lease/renew.go", "activity.Swap(touched) == wanted", "activity.Swap(touched) == touched"}},
		hunters: []check{{"lease", "^TestOnActivity$"}},
	},
	{
		name: "pause-is-a-lapse", does: "what was in use when its machine slept is told to have ended on time",
		edits:   []edit{{"lease/renewal.go", "case r.way == onActivity && s.activity.Load() == touched:", "case false:"}},
		hunters: []check{{"lease", "^TestAPauseInUseIsNoLapse$"}},
	},
}
