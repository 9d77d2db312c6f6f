package main

var hintHistories = check{"lease", "^TestHistoriesOfHints$"}

// ofHints are bugs of what may be wrong or missing: hints, and what is told for people.
var ofHints = []mutant{
	{
		name: "hints-believed", does: "a term that is hinted of is lost, and nobody looks",
		edits:   []edit{{"lease/hints.go", "k.hinting.terms.want(h.name)", "k.loseLocked(h, ErrRecordGone)"}},
		hunters: []check{leaseSim},
	},
	{
		name: "hints-alone", does: "who follows a prefix looks at nothing while hints come but what they name",
		edits: []edit{
			{"lease/follow_list.go", "at = began + most", "at = began + most*1000"},
			{"lease/follow_list.go", "at := began + least", "at := began + least\n\t\tif k.hinting.on && hinted {\n\t\t\tat = began + most*1000\n\t\t}"},
			{"lease/follow_list.go", " || began >= relist", " || began >= relist+never/2"},
		},
		hunters: []check{hintHistories},
	},
	{
		name: "granted-decides", does: "a term is as old as its record says, by another's time of day",
		edits: []edit{
			{"lease/settle.go", "since: k.clock.Now().Mono, continues", "since: mono(rec.Granted), continues"},
			{"lease/term_info.go", "// origin is what is known", "func mono(t time.Time) time.Duration { return time.Duration(t.UnixNano()) }\n\n// origin is what is known"},
		},
		hunters: []check{leaseSim},
	},
	{
		name: "hints-starve-listing", does: "what hints name is looked at in the place of listings",
		edits:   []edit{{"lease/follow_list.go", " || began >= relist", " || began >= relist+never/2"}},
		hunters: []check{hintHistories},
	},
}
