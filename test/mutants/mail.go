package main

// ofMail are bugs of what carries mail between nodes.
var ofMail = []mutant{
	{
		name: "forgotten-channel-takes", does: "what a peer took of a forgotten channel counts for what the next one has yet to send",
		edits:   []edit{{"internal/transport/frames.go", "s.frames[n].number <= upTo && s.frames[n].sent", "s.frames[n].number <= upTo"}},
		hunters: []check{channels},
	},
	{
		name: "silence-untold", does: "nobody is told of a link that counts as broken for its silence, or for what its answers say",
		edits:   []edit{{"internal/transport/sender.go", "s.ended, s.up, s.broke = nil, false, true", "s.ended, s.up = nil, false"}},
		hunters: []check{channels, linkBreaks},
	},
	{
		name: "silence-for-ever", does: "a link that is not answered is never made anew",
		edits:   []edit{{"internal/transport/sender.go", "s.waiting, s.later, s.broken, s.redial = nil, nil, now, true", "s.waiting, s.later, s.broken = nil, nil, now"}},
		hunters: []check{linkBreaks},
	},
	{
		name: "anew-behind-subscribers", does: "a link that is not answered is made anew when subscribers of the EventStream have been told",
		edits:   []edit{{"internal/transport/node.go", "if !actors.GiveLinkUp(n.system, address) {", "if _ = actors.GiveLinkUp; true {"}},
		hunters: []check{linkBreaks},
	},
	{
		name: "break-told-late", does: "who watches links is told of a break when the next one has been probed, which runs code of users",
		edits: []edit{{"internal/transport/peer.go", "\tfor p.s.broke || p.s.redial {\n\t\tp = p.tellLocked()\n\t}\n",
			"\tp.drainLocked()\n\tfor p.s.broke || p.s.redial {\n\t\tp = p.tellLocked()\n\t}\n"}},
		hunters: []check{linkBreaks},
	},
	{
		name: "answers-send", does: "what an answer lets go is sent on the goroutine that reads the link",
		edits:   []edit{{"internal/transport/peer.go", "\t\tgo p.settle()\n\t}\n}\n\n// settle", "\t\tp.mu.Unlock()\n\t\tp.settle()\n\t\tp.mu.Lock()\n\t}\n}\n\n// settle"}},
		hunters: []check{linkBreaks},
	},
	{
		name: "failed-send-uncounted", does: "mail whose send fails is neither counted nor told to who asked",
		edits:   []edit{{"internal/transport/drain.go", "if o.lost != nil {", "if false {"}},
		hunters: []check{linkBreaks},
	},
	{
		name: "failed-send-counted-twice", does: "mail whose send fails is counted again when its link breaks",
		edits:   []edit{{"internal/transport/legs.go", "\t\t\tt.n--\n", ""}},
		hunters: []check{linkBreaks},
	},
	{
		name: "hang-alone-untold", does: "a send that does not return is looked after by those that come behind it alone",
		edits: []edit{{"internal/transport/peer.go", "\tp.armLocked() // the send may not return\n", ""},
			{"internal/transport/peer.go", "\tp.armLocked() // a send may not return\n", ""}},
		hunters: []check{linkBreaks},
	},
	{
		name: "gateway-runs-subscribers", does: "what subscribers of dead letters panic with ends who hands answers over",
		edits:   []edit{{"internal/reply/lanes.go", "outside.Tell(system, h.to, h.msg)", "system.Root.Send(h.to, h.msg)\n\t\t_ = outside.Tell"}},
		hunters: []check{{"internal/reply", "^FuzzGateway$"}},
	},
	{
		name: "gateway-waits-for-codecs", does: "who hands answers over waits for a codec until it returns",
		edits: []edit{{"internal/reply/reply.go", "outside.Code(&g.codecs, e.Type, wire.ErrUndecodable, func() (any, error) { return wire.Default.Open(e) })",
			"wire.Default.Open(e)"}},
		hunters: []check{{"internal/reply", "^FuzzGateway$"}},
	},
	{
		name: "gateway-waits-for-mailboxes", does: "who hands answers over waits for mailboxes and dispatchers of users",
		edits:   []edit{{"internal/reply/lanes.go", "go l.run(system, to.Id)\n\t}\n\treturn true", "l.mu.Unlock()\n\t\tl.run(system, to.Id)\n\t\tl.mu.Lock()\n\t}\n\treturn true"}},
		hunters: []check{{"internal/reply", "Test"}},
	},
	{
		name: "gateway-passes-checks", does: "what is checked where it comes in may come by the gateway of answers, too",
		edits:   []edit{{"internal/reply/reply.go", "if e.Codec == wire.CodecProto {", "if false {"}},
		hunters: []check{{"internal/reply", "^FuzzGateway$"}},
	},
	{
		name: "door-overtakes", does: "the short way of a singleton's mail to another node does not look at what waits, or is under way to an earlier host",
		edits: []edit{{"singleton/door.go", "} else if node, token, ok := p.Through(); ok {",
			"} else if node, token, ok := p.Holder(), p.host.Token, p.Holder() != nil; ok {"}},
		hunters: []check{singletonSim, singletonMail},
	},
	{
		name: "door-left-open", does: "the short way of a singleton's mail stays open while its host changes",
		edits:   []edit{{"singleton/controller.go", "\tc.proxy.door.shut()\n", ""}},
		hunters: []check{singletonSim, singletonMail},
	},
	{
		name: "straight-mail-uncounted", does: "mail that goes straight takes no room in the window",
		edits: []edit{{"internal/transport/sender.go", "\t\ts.out = append(s.out, outgoing{to, msg, lost, s.begun})\n\t}\n\ts.count(size, now)\n\treturn s.link",
			"\t\ts.out = append(s.out, outgoing{to, msg, lost, s.begun})\n\t}\n\t_ = size\n\treturn s.link"}},
		hunters: []check{singletonMail, shardMail},
	},
	{
		name: "headers-uncounted", does: "headers of mail that goes straight take no room in the window",
		edits:   []edit{{"internal/fastpath/fastpath.go", "m.size += len(key)", "m.size = len(m.plain.Payload()) + len(key)"}},
		hunters: []check{singletonMail, shardMail},
	},
	{
		name: "no-text-sent", does: "a header that is not UTF-8 is sent to another node, and ends the link",
		edits:   []edit{{"internal/wire/text.go", "if !utf8.ValidString(k) || !utf8.ValidString(v) {", "if false && !utf8.ValidString(k+v) {"}},
		hunters: []check{singletonSim, shardCalm},
	},
	{
		name: "gate-trusts-its-logger", does: "a logger that fails ends what the gate was about, be it an actor's end or a message",
		edits:   []edit{{"internal/gate/lifecycle.go", "outside.Of(system).Do(func() {\n\t\tsystem.Logger()", "func(f func()) { f() }(func() {\n\t\tsystem.Logger()"}},
		hunters: []check{gateTests},
	},
	{
		name: "plain-beyond-envelope", does: "what fits no Envelope travels plainly, to where it may have to be put in one",
		edits:   []edit{{"internal/fastpath/fastpath.go", "if size+names > limit", "if _ = names; size > limit"}},
		hunters: []check{{"internal/fastpath", "."}},
	},
	{
		name: "burst-overtakes", does: "a mailbox takes what was posted last before the rest of a burst",
		edits:   []edit{{"internal/gate/inbox.go", "case len(b.full) > 0:", "case len(b.full) > 0 && len(b.in) == 0:"}},
		hunters: []check{singletonMail, shardMail},
	},
	{
		name: "links-told-behind-users", does: "who watches links hears of them by the EventStream, behind subscribers that fail",
		edits: []edit{
			{"internal/actors/linkwatch.go", "\tl.tellLocked(address)\n\treturn func() {", "\treturn func() {"},
			{"internal/actors/linkwatch.go", "\tcase l.passing[e]:\n", "\tcase l.passing[e]:\n\t\tl.tellLocked(e.Address)\n"},
		},
		hunters: []check{{"internal/memnet", "^TestWhoWatchesLinks"}, {"remoting", "^TestSubscribersKeepNoLinkDown$"}, singletonSim},
	},
	{
		name: "remote-among-users", does: "remote hears of its links by the EventStream of users, behind those who came first",
		edits:   []edit{{"remoting/node.go", "remote.NewRemote(n.apart(), config)", "remote.NewRemote(system, config)"}},
		hunters: []check{{"remoting", "^TestSubscribersKeepNoLinkDown$|^TestAMiddlewareOfRoot"}},
	},
	{
		name: "link-waits-for-letters", does: "nobody hears of a link that broke while remote does not return",
		edits:   []edit{{"remoting/apart.go", "time.NewTimer(outside.Patience)", "time.NewTimer(1 << 62)"}},
		hunters: []check{{"remoting", "^TestTheEndOfALink"}},
	},
	{
		name: "next-life-not-expected", does: "a link that is down is not tried when a record tells of another life at its address",
		edits:   []edit{{"internal/transport/sender.go", "if life == known || s.up || s.link == 0 {", "if life == known || true {"}},
		hunters: []check{{"internal/transport", "^TestALinkIsUpAsSoon"}},
	},
	{
		name: "letter-waits-for-probe", does: "a message about mail waits for a link for longer than it is of use",
		edits:   []edit{{"internal/transport/sender.go", "\t\ts.pause = min(s.pause, downAfter)", "\t\t_ = downAfter"}},
		hunters: []check{{"internal/transport", "^TestAMessageAboutMail"}},
	},
	{
		name: "end-told-again", does: "a link that was given up ends the one that follows when it is closed",
		edits:   []edit{{"remoting/apart.go", "\t\tn.links.told(e.Address)\n", ""}},
		hunters: []check{{"remoting", "^TestALinkThatIsGivenUp"}},
	},
	{
		name: "reader-gone-unseen", does: "a stream whose reader's goroutine is ended neither goes on nor ends",
		edits:   []edit{{"remoting/guard.go", "outside.Apart(func() (error, error)", "outside.Get(func() (error, error)"}},
		hunters: []check{{"remoting", "^TestAReaderWhoseGoroutine"}},
	},
	{
		name: "words-overtake-mail", does: "remote hears of the ends of watched actors before mail that was sent before them",
		edits: []edit{{"remoting/deliver.go", "\tfor len(b.Envelopes) > 0 {\n",
			"\tfor len(b.Envelopes) > 0 {\n\t\tif len(b.Envelopes) > 1 && b.TypeNames[b.Envelopes[1].TypeId] == \"actor.Terminated\" {\n" +
				"\t\t\tb.Envelopes[0], b.Envelopes[1] = b.Envelopes[1], b.Envelopes[0]\n\t\t}\n"}},
		hunters: []check{{"remoting", "^TestABatchIsDelivered"}},
	},
	{
		name: "mail-behind-words-lost", does: "what a batch has behind the end of a watched actor is not delivered",
		edits:   []edit{{"remoting/guard.go", "\tif s.rest != nil {\n", "\tif false {\n"}},
		hunters: []check{{"remoting", "^TestABatchIsDelivered"}},
	},
	{
		name: "letters-hold-the-link", does: "dead letters of what came in beside protoactor's own words are told by who reads the link",
		edits: []edit{{"remoting/guard.go", "\tfor _, t := range b.Targets {\n\t\tif t.Address == own {\n\t\t\tt.Address",
			"\tfor _, t := range b.Targets {\n\t\tif t.Address == own && len(b.TypeNames) == 1 {\n\t\t\tt.Address"}},
		hunters: []check{{"remoting", "^TestSubscribersBreakNoLink"}},
	},
	{
		name: "type-ends-the-link", does: "what a type's own code panics with, as it is read, ends the stream",
		edits:   []edit{{"remoting/deliver.go", "defer routines.Contain(&err)", "_ = routines.Contain"}},
		hunters: []check{{"remoting", "^TestATypeThatPanics"}},
	},
}
