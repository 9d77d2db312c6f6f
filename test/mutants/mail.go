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
}
