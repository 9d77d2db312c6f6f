package main

var (
	etcdHistory  = check{"backends/etcd", "^TestHistories$"}
	restoreSoak  = check{"test/soak", "^TestShortRestore$"}
	setbackSim   = check{"singleton", "^TestSimulationOfSetbacks$"}
	candidateSim = check{"singleton", "^TestSimulationOfCandidates$"}
	setbackSeen  = check{"singleton", "^TestScenarioSetback"}
)

// ofHistory are bugs where a store's history goes back.
var ofHistory = []mutant{
	{
		name: "route-remembers", does: "a route keeps the tokens of a history that went back",
		edits: []edit{
			{"internal/route/forget.go", "r.own, r.floor = own, 0", "_ = own"},
			{"internal/route/forget.go", "r.host, r.known = hop{}, false", ""},
		},
		hunters: []check{setbackSim, setbackSeen, restoreSoak},
	},
	{
		name: "nobody-told-to-forget", does: "who follows records is not told that a history was accepted",
		edits:   []edit{{"lease/setback.go", "k.newEraLocked(k.era.forget + 1)", "k.newEraLocked(k.era.forget)"}},
		hunters: []check{setbackSim, setbackSeen, restoreSoak},
	},
	{
		name: "table-remembers", does: "a node keeps the highest tokens of shards of a history that went back",
		edits:   []edit{{"sharding/internal/directory/table.go", "t.reset(t.clearLocked)", "t.reset(func() {})"}},
		hunters: []check{{"sharding", "^TestShardsComeBack"}},
	},
	{
		name: "setback-unheard", does: "the Keeper takes what a store says of its history for a failure",
		edits:   []edit{{"lease/setback.go", "setback := errors.Is(err, ErrSetback)\n", "setback := false\n"}},
		hunters: []check{restoreSoak},
	},
	{
		name: "overtaken-answer-alarms", does: "an answer that was overtaken by a later one is taken for a history that went back",
		edits:   []edit{{"backends/etcd/history.go", "hd.Revision < m.highest:", "hd.Revision < h.highest:"}},
		hunters: []check{etcdHistory},
	},
	{
		name: "late-member-answers", does: "a member that is behind answers a probe of the watches",
		edits:   []edit{{"backends/etcd/history.go", " && hd.Revision >= h.probed.highest", ""}},
		hunters: []check{etcdHistory},
	},
	{
		name: "other-cluster-unseen", does: "another cluster with lower revisions is taken for the one before",
		edits:   []edit{{"backends/etcd/history.go", "case hd.ClusterId != h.cluster, hd.Revision < m.highest:", "case hd.ClusterId == h.cluster && hd.Revision < m.highest:"}},
		hunters: []check{etcdHistory},
	},
	{
		name: "same-token-same-ownership", does: "who follows records takes two ownerships under one token for one",
		edits:   []edit{{"lease/heard.go", "return mark{r.Token, r.Nonce}", "return mark{r.Token, 0}"}},
		hunters: []check{setbackSim, setbackSeen},
	},
	{
		name: "gone-is-forgotten", does: "who follows records forgets the tokens of what is gone",
		edits:   []edit{{"lease/heard.go", "	if m.token == 0 {\n		return\n	}\n	if len", "	if m.token >= 0 {\n		return\n	}\n	if len"}},
		hunters: []check{setbackSim, setbackSeen},
	},
	{
		name: "own-finding-ends-itself", does: "a setback that a follower found is over after a TTL, undecided",
		edits:   []edit{{"lease/setback.go", "case k.setback != nil && err == k.setback.err:", "case false:"}},
		hunters: []check{setbackSim, setbackSeen},
	},
}
