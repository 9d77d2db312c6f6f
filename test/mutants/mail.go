package main

// ofMail are bugs of what carries mail between nodes.
var ofMail = []mutant{
	{
		name: "forgotten-channel-takes", does: "what a peer took of a forgotten channel counts for what the next one has yet to send",
		edits:   []edit{{"internal/transport/frames.go", "s.frames[n].number <= upTo && s.frames[n].tries > 0", "s.frames[n].number <= upTo"}},
		hunters: []check{channels},
	},
	{
		name: "gateway-runs-subscribers", does: "what subscribers of dead letters panic with ends who hands answers over",
		edits:   []edit{{"internal/reply/reply.go", "outside.Tell(ctx.ActorSystem(), target, &actor", "ctx.ActorSystem().Root.Send(target, &actor"}},
		hunters: []check{{"internal/reply", "^FuzzGateway$"}},
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
		edits: []edit{{"internal/transport/sender.go", "\t\ts.out = append(s.out, outgoing{to, msg})\n\t}\n\ts.count(size, now)\n\treturn s.link",
			"\t\ts.out = append(s.out, outgoing{to, msg})\n\t}\n\t_ = size\n\treturn s.link"}},
		hunters: []check{singletonMail, shardMail},
	},
	{
		name: "burst-overtakes", does: "a mailbox takes what was posted last before the rest of a burst",
		edits:   []edit{{"internal/gate/inbox.go", "case len(b.full) > 0:", "case len(b.full) > 0 && len(b.in) == 0:"}},
		hunters: []check{singletonMail, shardMail},
	},
}
