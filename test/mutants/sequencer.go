package main

var (
	fencesSim   = check{"lease/sequencer", "^TestHistories$"}
	sequencers  = check{"lease/sequencer", "."}
	httpRefusal = check{"lease/sequencer/httpfence", "^Test"}
)

// ofSequencers are bugs of those who judge tokens that travel.
var ofSequencers = []mutant{
	{
		name: "sequencer-of-another-lease", does: "a sequencer passes wherever its lease is, whatever it guards",
		edits:   []edit{{"lease/sequencer/httpfence/guard.go", "name != s.Name {", "name == \"\" {"}},
		hunters: []check{httpRefusal},
	},
	{
		name: "sequencer-record-of-another", does: "Check believes a record of another name",
		edits:   []edit{{"lease/sequencer/check.go", "(rec.Name != s.Name || rec.Token == 0)", "rec.Token == 0"}},
		hunters: []check{sequencers},
	},
	{
		name: "sequencer-stale-after-newer", does: "a fence that has seen a later token lets an earlier one in",
		edits:   []edit{{"lease/sequencer/fences.go", "if m.fence.Advance(s.Token) != nil {", "if s.Token == 0 {"}},
		hunters: []check{fencesSim, sequencers, httpRefusal},
	},
	{
		name: "sequencer-not-waited-for", does: "work of a later token runs beside that of an earlier one",
		edits:   []edit{{"lease/sequencer/fences.go", "		if former == nil {\n", "		if true {\n"}},
		hunters: []check{fencesSim, httpRefusal},
	},
	{
		name: "sequencer-forgotten-while-asked", does: "a mark is forgotten while the store is asked about its name",
		edits:   []edit{{"lease/sequencer/fences.go", "		if m.users == 0 {\n", "		if m.last == nil {\n"}},
		hunters: []check{fencesSim, sequencers},
	},
	{
		name: "sequencer-made-up-raises", does: "a token that the store did not give raises the mark",
		edits:   []edit{{"lease/sequencer/fences.go", "stale.Superseded() {\n", "true {\n\t\tstale.Seen = s.Token\n"}},
		hunters: []check{sequencers, httpRefusal},
	},
	{
		name: "sequencer-unknown-is-fresh", does: "what the store can't tell counts as the present holder's",
		edits:   []edit{{"lease/sequencer/check.go", "	case err != nil:\n		return fmt.Errorf(\"sequencer %v: %w: %w\", s, lease.ErrUnknown, err)\n", "	case err != nil:\n		return nil\n"}},
		hunters: []check{sequencers, httpRefusal},
	},
	{
		name: "sequencer-free-is-fresh", does: "a lease that nobody holds is taken for the caller's",
		edits:   []edit{{"lease/sequencer/check.go", "		return &StaleError{Sequencer: s}\n", "		return nil\n"}},
		hunters: []check{sequencers, httpRefusal},
	},
	{
		name: "sequencer-missing-passes", does: "a request without a sequencer passes",
		edits:   []edit{{"lease/sequencer/httpfence/guard.go", "if len(texts) == 0 && g.optional {", "if len(texts) == 0 {"}},
		hunters: []check{httpRefusal},
	},
	{
		name: "sequencer-text-twofold", does: "a sequencer has several texts",
		edits:   []edit{{"lease/sequencer/sequencer.go", "if i += 2; plain(c) {", "if i += 2; false {"}},
		hunters: []check{sequencers},
	},
}
