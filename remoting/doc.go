// Package remoting runs protoactor's remote the way production needs it, and names the Go types that
// may travel between nodes (Register).
//
//	cfg, err := remoting.Configure("10.0.0.7", 8080, remoting.WithTLS(server, client))
//	system := actor.NewActorSystem(remoting.LogTo(logger))
//	node, err := remoting.Start(system, cfg) // before anything is spawned
//	defer node.Shutdown(true)
//
// Package remote trusts its peers with the process: a message of an unknown type, or a call of an
// unimplemented procedure, ends it. Start stands on both sides of remote:
//
//	local actors ──▶ outbound check ──▶ remote ═══ gRPC ═══▶ inbound check ──▶ remote ──▶ actors
//	                  │                                       │
//	                  ▼                                       ▼
//	          dead letter here:                      dead letter here, and an answer
//	          no Protocol Buffers,                   to the sender of a request:
//	          too large, shut down,                  unknown type, wrong address,
//	          no address                             JSON, for remote's own actors
//
// Bytes that are no value of their type cost their message alone. An index that points nowhere ends
// the stream it came on. Stats counts all of it. A peer that stops answering is noticed after about
// 13 s, a dead one at once; neither says anything about leases. WithMaxMessageSize must be the same on
// all nodes.
//
// PIDs must carry exactly the string of Node.Address: "localhost:8080" is not "127.0.0.1:8080". A
// message for another address is a dead letter, and Stats.Misaddressed counts it.
//
// With WithTLS a certificate is its node's: a peer is let in as the node at an address that its
// certificate is for (WithPeerCheck). What nodes say to each other about leases, orders, moves and
// links, and what protoactor says of watched actors, counts only in the peer's own name. A peer can't
// stop an actor of another node, or reach an actor of Holdfast's that is for its own node alone.
// Stats.Forged counts attempts.
//
// A peer that is let in can still send any actor any message, with any sender; hold what leases it can
// get in the store; and take part in hand-overs in its own name. So one authority signs for the cluster
// and for nothing else. With WithPlaintext a peer may claim to be any node: the checks then contain
// mistakes and version skew, not an attacker.
package remoting
