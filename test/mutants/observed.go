package main

var (
	observedKit = check{"lease/observed", "^TestConformance$"}
	observedSim = check{"lease/observed", "^TestHistories$"}
)

// ofObserved are bugs of sessions that are told dead by looking at them.
var ofObserved = []mutant{
	{
		name: "observed-compares-wall-clocks", does: "a session is dead by its owner's time of day and its observer's",
		edits: []edit{
			{"lease/observed/session.go", "Life: rand.Uint64(),", "Life: rand.Uint64(), Beat: uint64(s.clock.Now().Wall),"},
			{"lease/observed/session.go", "next.Beat++", "next.Beat = uint64(s.clock.Now().Wall)"},
			{"lease/observed/session.go", "return wait(g.TTL) - (now - g.since)", "return wait(g.TTL) - time.Duration(s.clock.Now().Wall-int64(g.Beat))"},
		},
		hunters: []check{observedSim, observedKit},
	},
	{
		name: "observed-death-not-final", does: "a name is taken of a session that was not deleted",
		edits:   []edit{{"lease/observed/session.go", "ended, err := s.objects.Delete(ctx, key, g.version)", "ended, err := true, error(nil)"}},
		hunters: []check{observedSim, observedKit},
	},
	{
		name: "observed-revives", does: "a renewal opens a session again that was deleted",
		edits: []edit{{"lease/observed/session.go", "\t\tif !known || !g.is(of) {\n\t\t\treturn lease.Grant{Err: s.gone(op, of)}\n", `		if !known || !g.is(of) {
			grant, err := s.OpenSession(ctx, of)
			grant.Err = err
			return grant
`}},
		hunters: []check{observedSim, observedKit},
	},
	{
		name: "observed-tokens-restart", does: "a release leaves no tombstone, so that tokens are counted anew",
		edits:   []edit{{"lease/observed/claim.go", "if r.Session == 0 && s.number != nil {", "if r.Session == 0 {"}},
		hunters: []check{observedSim, observedKit},
	},
	{
		name: "observed-inherits", does: "a session is taken to be unchanged since before it was looked at",
		edits: []edit{{"lease/observed/session.go", "\tg.last = now\n", `	if !seen && o.Beat > 0 {
		g.since = 0
	}
	g.last = now
`}},
		hunters: []check{observedSim, observedKit},
	},
	{
		name: "observed-sees-too-early", does: "what was seen is taken to be so since the request was sent",
		edits: []edit{
			{"lease/observed/session.go", "\t\tobject, found, err := s.objects.Get(ctx, key)\n", "\t\tsent := s.clock.Now().Mono\n\t\tobject, found, err := s.objects.Get(ctx, key)\n"},
			{"lease/observed/session.go", "\t\tg := s.note(id, o, object.Version)\n", `		g := s.note(id, o, object.Version)
		if g.since > sent {
			g.since = sent
			s.mu.Lock()
			s.sights[id] = g
			s.mu.Unlock()
		}
`},
		},
		hunters: []check{observedSim, observedKit},
	},
	{
		name: "observed-record-without-version", does: "a record is written over whatever stands when it is written",
		edits: []edit{{"lease/observed/claim.go", "\tversion, ok, err := s.put(ctx, op, key, value, n.version)\n", `	if o, ok, err := s.objects.Get(ctx, key); err == nil && ok {
		n.version = o.Version
	}
	version, ok, err := s.put(ctx, op, key, value, n.version)
`}},
		hunters: []check{observedSim, observedKit},
	},
	{
		name: "observed-unknown-is-renewed", does: "a renewal that got no answer is granted",
		edits: []edit{{"lease/observed/session.go", "\t\t_, ok, err := s.beat(ctx, op, of.ID, g)\n\t\tif err != nil {\n\t\t\treturn lease.Grant{Err: err}\n",
			"\t\t_, ok, err := s.beat(ctx, op, of.ID, g)\n\t\tif err != nil {\n\t\t\treturn lease.Grant{TTL: g.TTL}\n"}},
		hunters: []check{observedSim, observedKit},
	},
	{
		name: "observed-ended-look-frees", does: "a look at a session that ended its goroutine finds none",
		edits: []edit{{"lease/observed/objects.go", "\terr = routines.Apart(func() (err error) { o, ok, err = c.objects.Get(ctx, key); return err })\n\treturn o, ok, err\n",
			"\tdefer func() {\n\t\tif recover() != nil {\n\t\t\terr = lease.ErrUnknown\n\t\t}\n\t}()\n\treturn c.objects.Get(ctx, key)\n"}, {"lease/observed/store.go", "errs[i] = errEnded", "errs[i] = nil"}},
		hunters: []check{observedSim, {"lease/observed", "^TestALook"}},
	},
	{
		name: "observed-unfinished-is-done", does: "what did not return, of several requests, has succeeded",
		edits:   []edit{{"lease/observed/store.go", "errs[i] = errEnded", "errs[i] = nil"}},
		hunters: []check{{"lease/observed", "^TestWhatDidNotReturn"}},
	},
}
