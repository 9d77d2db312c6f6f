package main

var (
	moneyMoves = check{"examples/reactor", "^TestMoneyMovesOnce$"}
	reactions  = check{"examples/reactor", "^TestStale|^TestEffects|^TestDivergence"}
)

// ofReactor are bugs of work in runs that are journaled under a lease.
var ofReactor = []mutant{
	{
		name: "reactor-unguarded", does: "the journal is written by whoever had the lease once",
		edits:   []edit{{"examples/reactor/journal.go", "if err := j.store.Guard(ctx, tx, term); err != nil {\n\t\t\treturn err\n\t\t}\n\t\treturn f(tx)", "return f(tx)"}},
		hunters: []check{reactions},
	},
	{
		name: "reactor-confirmed-again", does: "an effect that was confirmed is done again",
		edits:   []edit{{"examples/reactor/journal.go", "if r.seq < len(r.past) { // it was confirmed", "if r.seq < 0 {"}},
		hunters: []check{moneyMoves, reactions},
	},
	{
		name: "reactor-pending-again", does: "an effect that was begun is done again, and not looked for",
		edits:   []edit{{"examples/reactor/journal.go", "\tif begun {\n", "\tif begun && key == \"\" {\n"}},
		hunters: []check{moneyMoves, reactions},
	},
	{
		name: "reactor-steps-again", does: "a successor does what the journal has once more",
		edits:   []edit{{"examples/reactor/journal.go", "array(SELECT name FROM reactor.event WHERE run = mine.id ORDER BY seq)", "'{}'::text[]"}},
		hunters: []check{moneyMoves, reactions},
	},
}
