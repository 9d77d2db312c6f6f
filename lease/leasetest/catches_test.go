package leasetest

import "slices"

// catch says which cases must notice a flaw, and the rule each must report.
// Other cases may notice it too.
type catch struct {
	flaw flaw
	by   []by
}

type by struct {
	name string
	rule rule // "": any, where it is for the engine to say
}

// catches names at least one flaw for every case and for every rule of the kit.
var catches = slices.Concat(claimCatches, sessionCatches, readCatches, listedCatches, handsCatches, objectsCatches, alikeCatches, limitCatches, whileCatches, handleCatches)

// byChance are the flaws that do harm only if another call comes in between.
var byChance = []flaw{
	acquireRaces, supersedeRaces, releaseRaces, closeRaces, transferRaces, transferCloseRaces, transferLeavesGap,
	listPagesByIndex, watchStartsLate, watchBufferOverflows, watchSwaps,
	deletionsStartLate, deletionsTellTransfers,
}
