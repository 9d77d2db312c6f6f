package main

// ofContract are bugs in what a Keeper asks of its store, and tells of it.
var ofContract = []mutant{
	{
		name: "ended-sessions-unlisted", does: "reconciliation does not look under sessions that this Keeper has ended",
		edits:   []edit{{"lease/pool.go", "k.bygone[s.ID] = s", "_ = s"}},
		hunters: []check{{"lease", "^TestWhatLandsUnderAnEndedSessionIsFound$"}},
	},
	{
		name: "missing-is-gone", does: "what a session's listing does not have counts as gone, and nobody looks",
		edits:   []edit{{"lease/own.go", "found, err := k.get(context.Background(), missed)", "found, err := map[string]Record{}, error(nil)"}},
		hunters: []check{{"lease", "^TestWhatIsNotUnderItsSessionIsAskedFor$"}},
	},
	{
		name: "denied-tries-on", does: "what the store denies is tried until the time is over",
		edits:   []edit{{"lease/settle.go", "\tif errors.Is(err, ErrDenied) {\n\t\tk.giveUpLocked", "\tif false {\n\t\tk.giveUpLocked"}},
		hunters: []check{{"lease", "^TestADenied"}},
	},
	{
		name: "denied-is-settled", does: "a denial settles what an earlier attempt left open",
		edits:   []edit{{"lease/settle.go", "\tif errors.Is(err, ErrDenied) {\n\t\tk.giveUpLocked", "\tif errors.Is(err, ErrDenied) {\n\t\to.unknown = false\n\t\tk.giveUpLocked"}},
		hunters: []check{{"lease", "^TestADenialSettlesNothing$"}},
	},
	{
		name: "values-dropped", does: "the values of a caller's context do not reach the store",
		edits:   []edit{{"lease/values.go", "return bearing{ctx, caller}", "return ctx"}},
		hunters: []check{{"lease", "^TestTheValuesOfACallerReachTheStore$"}},
	},
	{
		name: "values-end-requests", does: "what ends a caller's context is taken for what ended a request",
		edits:   []edit{{"lease/values.go", "\tif v := b.Context.Value(key); v != nil {\n\t\treturn v\n\t}\n", ""}},
		hunters: []check{{"lease", "^TestTheEndOfARequestIsTheKeepers$"}},
	},
}
