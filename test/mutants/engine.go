package main

// ofEngine are bugs of the lease engine.
var ofEngine = []mutant{
	{
		name: "runs-share-a-term", does: "calls of Run for one lease do not take turns",
		edits:   []edit{{"lease/run.go", "\tdefer end()\n", "\tend()\n"}},
		hunters: []check{leaseSim},
	},
}
