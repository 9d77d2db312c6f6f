package main

// ofHandovers are bugs of the protocol that singletons and shards share.
var ofHandovers = []mutant{
	{
		name: "offer-counts-for-ever", does: "an offer that was made for one hand-over counts for the next",
		edits:   []edit{{"internal/handover/machine.go", "\tm.Offer = m.Offer && p.HandsOver() && p != Inviting\n", ""}},
		hunters: []check{{"sharding", "^TestExplore$"}, {"singleton", "^TestExplore$"}, shardSim},
	},
}
