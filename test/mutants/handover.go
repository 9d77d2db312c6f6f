package main

// ofHandovers are bugs of the protocol that singletons and shards share.
var ofHandovers = []mutant{
	{
		name: "offer-counts-for-ever", does: "an offer that was made for one hand-over counts for the next",
		edits:   []edit{{"internal/handover/machine.go", "\tm.Offer = m.Offer && p.HandsOver() && p != Inviting\n", ""}},
		hunters: []check{{"sharding", "^TestExplore$"}, {"singleton", "^TestExplore$"}, shardSim},
	},
	{
		name: "end-noticed-again", does: "an end whose last step ends the goroutine is taken up again, without end",
		edits: []edit{
			{"internal/gate/lifecycle.go", "\tm.life = ended\n\tdefer m.ended()\n", ""},
			{"internal/gate/lifecycle.go", "error { f(a, lost); return nil })\n\t}\n", "error { f(a, lost); return nil })\n\t}\n\tm.life = ended\n\tm.ended()\n"},
		},
		hunters: []check{gateTests},
	},
	{
		name: "end-stuck-at-a-watcher", does: "a watcher whose mailbox ends the goroutine is told of an end again and again",
		edits: []edit{{"internal/gate/lifecycle.go", "_ = routines.Apart(func() error { outside.Signal(m.ctx.ActorSystem(), pid, message); return nil })",
			"outside.Signal(m.ctx.ActorSystem(), pid, message)"}},
		hunters: []check{gateTests},
	},
	{
		name: "state-ends-the-actor", does: "an actor is asked for its state on its own goroutine, which it may end",
		edits: []edit{{"internal/stateful/stateful.go", "err = routines.Apart(func() (err error) { state, err = s.HandOverState(); return err })",
			"_ = routines.Apart\n\terr = func() (err error) {\n\t\tdefer func() {\n\t\t\tif p := recover(); p != nil {\n\t\t\t\terr = fmt.Errorf(\"it panicked: %v\", p)\n\t\t\t}\n\t\t}()\n\t\tstate, err = s.HandOverState()\n\t\treturn err\n\t}()"}},
		hunters: []check{{"singleton", "^TestScenario10"}, {"internal/stateful", "."}},
	},
	{
		name: "patience-runs-over", does: "an asker who waits for ever is taken for one that has given up",
		edits:   []edit{{"internal/route/queue.go", "return now + min(max(left, 1), math.MaxInt64-max(now, 0))", "return now + max(left, 1) + 0*math.MaxInt8"}},
		hunters: []check{{"internal/route", "^TestAnAsker"}, {"singleton", "^TestAnAskWithoutAnEnd$"}},
	},
	{
		name: "end-untold", does: "nobody learns of the end of an actor whose mailbox ends the goroutine",
		edits: []edit{{"internal/gate/lifecycle.go", "routines.Apart(func() error { m.inner.PostUserMessage(&endMark{}); return nil })",
			"outside.Call(func() error { m.inner.PostUserMessage(&endMark{}); return nil })"}},
		hunters: []check{gateTests},
	},
}
