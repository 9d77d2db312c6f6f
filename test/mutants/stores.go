package main

var (
	parentsSim = check{"lease", "^TestHistoriesOfParents$"}
	renewals   = check{"backends/etcd", "^TestRenewal|^TestProving|^TestAStream|^TestALate"}
	guards     = check{"backends/etcd", "^TestGuardsOfAllKinds$"}
	endpoints  = check{"backends/etcd", "^TestEveryEndpoint|^TestEndpoints"}
	etcdKit    = check{"backends/etcd", "^TestConformance$/acquire"}
	remembered = check{"sharding", "^TestMemoryEntitiesConformance$"}
)

// ofStores are bugs of stores.
var ofStores = []mutant{
	{
		name: "handle-stays-home", does: "an offer does not say under which handle the store knows its session",
		edits:   []edit{{"lease/handle.go", "Handle: s.Handle, ", ""}},
		hunters: []check{{"lease/leasetest", "^TestRightHandlesPass$"}},
	},
	{
		name: "while-ignored", does: "a claim is won though what it is to hang on does not stand",
		edits:   []edit{{"backends/memory/store.go", "(on == nil || on.held() != c.While)", "on != nil && on == nil"}},
		hunters: []check{parentsSim, conformance},
	},
	{
		name: "store-takes-any-offer", does: "a store transfers to whatever it is given for an offer",
		edits:   []edit{{"backends/memory/store.go", "lease.ValidateNoHandle(m.To.Handle)); err != nil {", "lease.ValidateNoHandle(m.To.Handle)); err != nil && false {"}},
		hunters: []check{conformance},
	},
	{
		name: "metadata-as-it-comes", does: "metadata is written that another store would not return as it was",
		edits:   []edit{{"lease/valid.go", "case !utf8.ValidString(v):", "case false:"}},
		hunters: []check{conformance},
	},
	{
		name: "panics-pass-through", does: "a backend that panics ends the process",
		edits:   []edit{{"internal/routines/routines.go", "*err = fmt.Errorf(\"it panicked: %v\", p)", "panic(fmt.Sprint(p))"}},
		hunters: []check{observedSim},
	},
	{
		name: "ended-is-an-answer", does: "a request that ended its goroutine has answered, with nothing",
		edits:   []edit{{"internal/routines/routines.go", "err := ErrEnded", "var err error"}},
		hunters: []check{observedSim, {"lease/observed", "^TestALook"}},
	},
	{
		name: "probe-overtakes", does: "a watch answers a probe ahead of what it has to tell",
		edits:   []edit{{"backends/memory/watch.go", "\t\tw.queue = append(w.queue, c)\n", "\t\tif w.queue = append(w.queue, c); c.record == nil {\n\t\t\tw.queue = append([]change{c}, w.queue[:len(w.queue)-1]...)\n\t\t}\n"}},
		hunters: []check{conformance},
	},
	{
		name: "renewal-of-another's", does: "a renewal extends what stands under the session's names, whosever it is",
		edits: []edit{{"backends/memory/store.go", "\t\ts.due.move(own, later(now, own.ttl))\n\t\tgrants[i].TTL = own.ttl\n", `		s.due.move(own, later(now, own.ttl))
		for name := range own.names {
			if r := s.records[name]; r != nil {
				s.due.move(r.session, later(now, r.session.ttl))
			}
		}
		grants[i].TTL = own.ttl
`}, {"backends/memory/expiry.go", "\tplace    int           // in the expiryQueue\n", "\tplace    int           // in the expiryQueue\n\tnames    map[string]bool\n"},
			{"backends/memory/expiry.go", "func (o *session) link(r *record) {\n", `func (o *session) link(r *record) {
	if o.names == nil {
		o.names = map[string]bool{}
	}
	o.names[r.name] = true
`}},
		hunters: []check{conformance},
	},
	{
		name: "release-by-part", does: "a release compares the nonce, and no token",
		edits:   []edit{{"backends/memory/store.go", "case r.held() == h:", "case r.nonce == h.Nonce:"}},
		hunters: []check{conformance},
	},
	{
		name: "no-token-passes", does: "who has no token is let through a fence",
		edits: []edit{{"sharding/remember_memory.go", "if token == 0 {", "if false {"},
			{"sharding/remember_memory.go", "if token < s.highest {", "if token != 0 && token < s.highest {"}},
		hunters: []check{remembered},
	},
	{
		name: "guard-of-nobody", does: "the guard of an ownership without a token holds while nobody owns the name",
		edits:   []edit{{"backends/etcd/guard.go", "token == 0 || ", ""}},
		hunters: []check{guards},
	},
	{
		name: "proxy-believed", does: "renewals are believed whoever answers them",
		edits:   []edit{{"backends/etcd/keepalive.go", "resp.ID == keepaliveProbe && resp.TTL >= 0; proven {", "resp.ID == keepaliveProbe; proven {"}},
		hunters: []check{renewals},
	},
	{
		name: "one-member-asked", does: "the first server that tells its version speaks for all",
		edits:   []edit{{"backends/etcd/version.go", "\t\t\tknown[ep] = q.refused\n", "\t\t\tknown[ep] = q.refused\n\t\t\tif q.refused == nil {\n\t\t\t\tbreak\n\t\t\t}\n"}},
		hunters: []check{endpoints},
	},
	{
		name: "superseding-anyone", does: "a claim supersedes a record by its token, whosoever it is",
		edits:   []edit{{"backends/etcd/ownership.go", "[]clientv3.Cmp{s.at(c), clientv3.Compare(clientv3.LeaseValue(k), \"=\", int64(sess.ID))}", "[]clientv3.Cmp{s.at(c)}"}},
		hunters: []check{etcdKit},
	},
}
