package main

// ofEngine are bugs of the lease engine.
var ofEngine = []mutant{
	{
		name: "runs-share-a-term", does: "calls of Run for one lease do not take turns",
		edits:   []edit{{"lease/run.go", "\tdefer end()\n", "\tend()\n"}},
		hunters: []check{leaseSim},
	},
	{
		name: "logs-on-the-engine", does: "loggers and meters are called at once, with the lock held",
		edits:   []edit{{"lease/teller.go", "func (t *teller) tell(f func()) {\n", "func (t *teller) tell(f func()) {\n\tif true {\n\t\tf()\n\t\treturn\n\t}\n"}},
		hunters: []check{leaseSim},
	},
}
