package main

// The hunters of bugs at the border of a node.
var (
	hostilePlain = check{"test/hostile", "^TestAHostilePeer$"}
	hostileTLS   = check{"test/hostile", "^TestAPeerWithACertificateOfAnother$"}
)

// ofNodes are bugs at the border of a node.
var ofNodes = []mutant{
	{
		name: "any-certificate-does", does: "a peer is let in under any address, whatever its certificate",
		edits:   []edit{{"remoting/peers.go", "	if id.check != nil {\n		if err := id.check.of(", "	if false {\n		if err := id.check.of("}},
		hunters: []check{hostileTLS},
	},
	{
		name: "forged-names-pass", does: "what a peer says in the name of another node is believed",
		edits:   []edit{{"remoting/forged.go", "return slices.ContainsFunc(names(m)", "return false && slices.ContainsFunc(names(m)"}},
		hunters: []check{hostileTLS},
	},
	{
		name: "nameless-peer-speaks", does: "a peer that has not said who it is may speak",
		edits:   []edit{{"remoting/peers.go", "if id.check != nil && id.address == \"\" {", "if false {"}},
		hunters: []check{hostileTLS},
	},
	{
		name: "frame-in-anothers-name", does: "the names within frames are not looked at",
		edits:   []edit{{"remoting/forged.go", "	case *wire.Frame:\n		all := ", "	case *wire.Frame:\n		return nil\n		all := "}},
		hunters: []check{hostileTLS},
	},
	{
		name: "stop-from-outside", does: "a peer may stop an actor of another node",
		edits:   []edit{{"remoting/forged.go", "return typeName == stop || typeName == poison", "return typeName == poison"}},
		hunters: []check{hostilePlain, hostileTLS},
	},
	{
		name: "orders-of-anybody", does: "an order under the coordinator's token is obeyed from any node",
		edits:   []edit{{"sharding/orders.go", "case ok && c.speaksFor(m.From, record.Owner):", "case ok:"}},
		hunters: []check{shardCalm},
	},
	{
		name: "orders-of-nobody", does: "an order under a token that no record has is obeyed",
		edits:   []edit{{"sharding/orders.go", "		return fromUnknown\n", "		return fromCoordinator\n"}},
		hunters: []check{shardCalm, shardScenarios},
	},
}
