// Package remoting runs protoactor's remote the way production needs it, and
// names the Go types that may travel between nodes.
//
//	cfg, err := remoting.Configure("10.0.0.7", 8080, remoting.WithTLS(server, client))
//	system := actor.NewActorSystem(remoting.LogTo(logger))
//	node, err := remoting.Start(system, cfg) // before anything is spawned
//	defer node.Shutdown(true)
//
// # What it adds
//
// Package remote trusts its peers with the process: a message of an unknown type
// or a call of an unimplemented procedure ends it. Start stands on both sides of
// remote:
//
//	local actors ──▶ outbound check ──▶ remote ═══ gRPC ═══▶ inbound check ──▶ remote ──▶ actors
//	                  │                                       │
//	                  ▼                                       ▼
//	          dead letter here:                      dead letter here, the sender
//	          no Protocol Buffers,                   of a request is told:
//	          too large, shut down,                  unknown type, wrong address,
//	          no address                             JSON, for remote's own actors
//
// Bytes that are no value of their type cost their message alone. An index that
// points nowhere ends the stream it came on and nothing else. Stats counts all of
// it.
//
// Subscribers of the EventStream keep no link from being made or given up. A link ends once: what is told of one that
// was given up does not end the next. Sender middleware of the system's
// Root sees what is sent, not what comes in.
//
// Sizes fit together: a batch of as many messages as remote sends at once, each
// as large as WithMaxMessageSize allows, stays within what a peer accepts. All
// nodes must use the same setting.
//
// A peer that stops answering is noticed after about 13 s (keepalive of 10 s,
// then 3 s); a dead one at once. Neither says anything about leases.
//
// # One address
//
// A node has one address, Node.Address, and PIDs must carry exactly that string:
// "localhost:8080" is not "127.0.0.1:8080". Remote by itself sends a message
// that arrives under another name back to its own node for ever. Here it becomes
// a dead letter, and Stats.Misaddressed says so. Listen on an address that
// others can use, or name it with WithAdvertisedHost.
//
// # Security
//
// With WithTLS a certificate is its node's: a peer is let in as the node at one
// address, which its certificate must be for (WithPeerCheck). What nodes say to each
// other about leases, orders, moves and links, and what protoactor says of watched
// actors, counts only if it comes from the node in whose name it is; an order besides
// only if the records say that this node coordinates. Nobody may stop an actor of
// another node (Stop; for Holdfast's own actors PoisonPill, too), or reach one of
// Holdfast's that is for its own node alone. All of it is counted in Stats.Forged.
//
// What a peer that is let in may still do: send any actor any message, with any sender
// it likes, as messages are passed on; hold what leases it can get in the store; and
// take part in hand-overs in its own name. So one authority signs for the cluster and
// for nothing else, and nodes on one host are as one, unless WithPeerCheck can tell
// them apart. The store needs credentials of its own.
//
// With WithPlaintext a peer may claim to be any node: use that on a trusted network only.
// The checks then contain mistakes and version skew, not an attacker.
//
// # Message types
//
// Protocol Buffers messages travel as they are. Other Go types that are sent to
// singletons or sharded entities are made known with Register, under the same
// name on every node.
package remoting
