package main

// mutant is a known bug: a mistake that a system of this kind has made somewhere.
type mutant struct {
	name, does string
	edits      []edit
	hunters    []check // tried in this order, the simulations first
	spares     check   // passes with it planted: for edits that no compiler sees
}

// edit replaces one passage of a file, of whichever module.
type edit struct{ file, old, new string }

// check is some tests of one package, which may be another module's.
type check struct{ pkg, run string }

// kit is some groups of the cases of leasetest that wait for nothing, run over a store. Without
// capabilities it would leave out what a store need not have.
func kit(pkg, groups string) check {
	return check{pkg, "^TestConformance$/^(capabilities|" + groups + ")$"}
}

// waiting is kit for groups of cases that wait for time to pass.
func waiting(pkg, groups string) check {
	return check{pkg, "^TestConformance$/^(capabilities|waiting)$/^(" + groups + ")$"}
}

func (c check) String() string { return c.pkg + " " + c.run }

var (
	leaseSim       = check{"lease", "^TestSimulation$"}
	leaseScenarios = check{"lease", "^TestScenario"}
	conformance    = check{"backends/memory", "^TestConformanceOnFakeTime$"}
	gateTests      = check{"internal/gate", "."}
	singletonSim   = check{"singleton", "^TestSimulation$"}
	machine        = check{"singleton", "^TestMachineExhaustively$"}
	shardSim       = check{"sharding", "^TestSimulation"}
	shardCalm      = check{"sharding", "^TestCalm"}
	shardScenarios = check{"sharding", "^TestScenario|Passivat"}
	shardMail      = check{"sharding", "^TestScenarioMail"}
	shardStates    = check{"sharding", "State"}
	singletonMail  = check{"singleton", "^TestScenarioMail"}
	routeTests     = check{"internal/route", "."}
	channels       = check{"internal/transport", "^TestFramesAreTakenOnce|^TestExplore"}
	linkBreaks     = check{"internal/transport", "Break|Silent|^TestASend|^TestWhat"}
)

// core are the bugs that were planted first.
var core = []mutant{
	{
		name: "deadline-from-reply", does: "a session is trusted for a TTL from the reply on",
		edits: []edit{
			{"lease/pool.go", "k.store.OpenSession(bear(ctx, caller), s.Session) })", "k.store.OpenSession(bear(ctx, caller), s.Session) })\n\tsent = k.clock.Now()"},
			{"lease/pool.go", "k.store.Renew(ctx, asked) })", "k.store.Renew(ctx, asked) })\n\tsent = k.clock.Now()"},
		},
		hunters: []check{leaseSim, singletonSim, leaseScenarios},
	},
	{
		name: "flag-only-checkalive", does: "CheckAlive does not look at the clock",
		edits:   []edit{{"lease/term.go", "p.over.Load() || !p.sess.trusts(r)", "p.over.Load()"}},
		hunters: []check{leaseSim, singletonSim, leaseScenarios},
	},
	{
		name: "late-win-kept", does: "a lease that is won after its caller went is kept",
		edits:   []edit{{"lease/settle.go", "case o.abandoned || k.closing || k.setback != nil || back || inconsistent:", "case k.closing || k.setback != nil || back || inconsistent:"}},
		hunters: []check{leaseSim, leaseScenarios},
	},
	{
		name: "settled-by-read-back", does: "an unknown outcome is settled by reading the record",
		edits: []edit{{"lease/settle.go", "case rec.Owner.Incarnation == k.owner.Incarnation && rec.Token != o.supersedes:", `case rec.Owner.Incarnation == k.owner.Incarnation:
		o.nonce, h.last = rec.Nonce, min(h.last, rec.Token-1)
		k.wonLocked(o, s, Outcome{Record: rec})
	case rec.Owner.Incarnation == k.owner.Incarnation && rec.Token != o.supersedes:`}},
		hunters: []check{leaseSim, leaseScenarios},
	},
	{
		name: "no-reconciliation", does: "records without a claim are left",
		edits:   []edit{{"lease/reconcile.go", "if r.running {", "if true {"}},
		hunters: []check{leaseSim, leaseScenarios},
	},
	{
		name: "old-event-believed", does: "a deletion of an earlier term ends the present one",
		edits:   []edit{{"lease/wait.go", "h.status == held && ev.Revision >= h.claim.Token {", "h.status == held {"}},
		hunters: []check{leaseSim, leaseScenarios},
	},
	{
		name: "release-before-stop", does: "the lease is released while the work still runs",
		edits:   []edit{{"internal/handover/machine.go", "return m.to(Draining, DropInvite, DoDrain)", "return m.to(Releasing, DropInvite, DoRelease)"}},
		hunters: []check{singletonSim, machine},
	},
	{
		name: "gate-ignores-loss", does: "messages pass though the lease is lost",
		edits: []edit{{"internal/gate/mailbox.go", "if !alive || m.life > running || m.gate.mode.mode() != Open {",
			"if (!alive || m.life > running || m.gate.mode.mode() != Open) && m.life != running {"}},
		hunters: []check{singletonSim, shardSim, gateTests},
	},
	{
		name: "backlog-dropped", does: "mail that a child or an entity has not taken is forgotten at a hand-over",
		edits: []edit{
			{"singleton/controller.go", "c.proxy.Back(route.Item{Local: msg.envelope, Size: wire.Footprint(msg.envelope)})", "_ = route.Item{}"},
			{"sharding/entry.go", "s.routing().Back(s.item(&mail{e.id, env}))", "_ = env"},
		},
		hunters: []check{shardCalm, singletonSim, shardScenarios},
	},
	{
		name: "blind-transfer", does: "the store transfers without a condition",
		edits:   []edit{{"backends/memory/store.go", "if old.held() != m.Held {", "if false {"}},
		hunters: []check{conformance, shardSim},
	},
	{
		name: "tokens-restart", does: "tokens begin anew when a name was free",
		edits: []edit{{"backends/memory/store.go", "r.token = s.counter", `r.token = s.counter
	if old == nil {
		r.token = 1
	}`}},
		hunters: []check{conformance, leaseSim},
	},
	{
		name: "stale-coordinator", does: "a node obeys every node that says it coordinates, about any time",
		edits: []edit{
			{"sharding/orders.go", "case !beside && c.past(m.From, m.Coordinator):", "case false:"},
			{"sharding/orders.go", "stale := lease.Token(a.Token) < s.seen", "stale := lease.Token(a.Token) < s.seen && false"},
		},
		hunters: []check{shardSim, shardScenarios},
	},
	{
		name: "start-without-lease", does: "a shard is opened though its lease is not acquired",
		edits: []edit{{"sharding/control.go", "s.term, _ = lease.TermOf(s.handle)", `s.term, _ = lease.TermOf(s.handle)
	if !s.term.CheckAlive() {
		l := lease.Unguarded(s.name)
		_, _ = l.Acquire(c.life)
		s.term, _ = lease.TermOf(l)
	}`}, {"sharding/loop.go", "c.acquire(s, func(ctx context.Context, h *lease.Handle) (bool, error) { return h.Acquire(ctx) })",
			"c.acquire(s, func(context.Context, *lease.Handle) (bool, error) { return true, nil })"}},
		hunters: []check{shardSim, shardScenarios},
	},
	{
		name: "passivation-loses", does: "mail that comes while an entity stops is forgotten",
		edits:   []edit{{"sharding/entry.go", "case e.Phase == entities.Active:", "case e.Phase == entities.Stopping:\n\tcase e.Phase == entities.Active:"}},
		hunters: []check{shardCalm, shardScenarios},
	},
	{
		name: "membership-ignored", does: "shards are kept when the membership is lost",
		edits:   []edit{{"sharding/start.go", "append(r.options(about), r.group.AsParent())...", "r.options(about)..."}},
		hunters: []check{shardSim, shardScenarios},
	},
	{
		name: "marker-ignored", does: "mail takes the new way at once",
		edits: []edit{
			{"internal/route/path.go", "case p.used && !p.here && !p.dead && r.maySwitch():", "case false:"},
			{"internal/route/path.go", "\t\tif p.used && !p.here && !p.dead {\n\t\t\tr.stats.Unordered++\n\t\t}\n", ""},
		},
		hunters: []check{shardCalm, singletonSim, routeTests},
	},
	{
		name: "custody-forgotten", does: "what a node was handed is not sent on when its link to the next breaks",
		edits:   []edit{{"internal/transport/sender.go", "s.ended, s.up, s.broke = nil, false, true", "s.ended, s.up, s.broke = nil, false, true\n\ts.drop(len(s.frames))"}},
		hunters: []check{singletonSim, shardCalm, shardScenarios, channels},
	},
	{
		name: "unbounded-buffer", does: "the buffer of a name has no bound",
		edits:   []edit{{"internal/route/buffer.go", "return r.queue.counted >= r.Limit || ", "return false && "}},
		hunters: []check{shardScenarios, routeTests},
	},
	{
		name: "credit-kept", does: "the window is never given back",
		edits:   []edit{{"internal/transport/sender.go", "\t\ts.flying.messages -= l.messages\n\t\ts.flying.bytes -= l.bytes\n", ""}},
		hunters: []check{shardMail, shardCalm, singletonSim},
	},
	{
		name: "messages-only", does: "the window counts messages, and no bytes",
		edits: []edit{
			{"internal/transport/sender.go", " && s.flying.bytes < s.bytes\n}", "\n}"},
		},
		hunters: []check{shardMail, singletonMail, shardCalm},
	},
	{
		name: "doubled-after-moves", does: "what is under way on a link that lives is sent the new way as well",
		edits: []edit{
			{"internal/transport/peer.go", "\tif p.s.up {\n\t\treturn nil\n\t}\n", ""},
			{"internal/route/path.go", "case p.used && !p.here && !p.dead && r.maySwitch():\n", "case p.used && !p.here && !p.dead && r.maySwitch():\n\t\tr.reclaim(r.port.Recall(p.node.GetAddress()))\n"},
		},
		hunters: []check{shardMail, singletonMail, shardCalm, singletonSim},
	},
	{
		name: "short-way-overtakes", does: "the short way does not look at what waits",
		edits:   []edit{{"internal/route/view.go", "if r.phase != away || !r.queue.empty() || ", "if r.phase != away || "}},
		hunters: []check{shardMail, shardCalm},
	},
	{
		name: "backlog-sorted", does: "what waits is sorted anew for each message",
		edits: []edit{{"internal/route/queue.go", "\tl.items = append(l.items, it)\n", `	l.items = append(l.items, it)
	for range 16 { // as for each acknowledgement of small windows
		slices.SortStableFunc(slices.Clone(l.items), func(a, b *Item) int { return int(a.came - b.came) })
	}
`}},
		hunters: []check{singletonMail, shardMail},
	},
	{
		name: "states-uncounted", does: "nothing of a hand-over says how many states there are",
		edits: []edit{
			{"internal/handover/sending.go", "Nonce: s.Nonce, States: uint32(s.total)}", "Nonce: s.Nonce}"},
			{"internal/handover/sending.go", "State: state, States: uint32(s.total)}", "State: state}"},
		},
		hunters: []check{shardStates},
	},
}
