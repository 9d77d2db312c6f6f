package main

// ofOwn are bugs that stores and leases of users' bring to light, which can do less than ours.
var ofOwn = []mutant{
	{
		name: "no-transfer-no-target", does: "a node to which a shard can't be transferred, as the store never transfers, counts as one that does not take it",
		edits:   []edit{{"sharding/handoff.go", "if errors.Is(err, lease.ErrUnsupported) {", "if false {"}},
		hunters: []check{{"sharding", "^TestShardsMoveWithoutTransfers$"}},
	},
}
