// Package route moves the mail of one leased name to the node that holds the name, and
// keeps its order while the name moves.
//
// Every node that sends mail to a name has a Router for it: the node that holds the
// name, nodes that held it, nodes that never will. A Router belongs to one actor and does
// nothing by itself: what it wants done it asks of its Port.
//
//	           Accept                 Deliver
//	locals ───────────▶ Router ──────────────────▶ the actor behind its gate   held here
//	           Receive    │  ▲  ──── Send, Keep ──▶ another node's Router      held there
//	nodes ────────────────┘  └── Back ── gate (what it refused)
//	                      └──▶ queue                                           no host known, or no room
//
// # Promises
//
// While links live and no bound is exceeded, mail is neither lost nor doubled, and what
// one sender sent stays in order, however often the name moves. What falls out of a
// bound goes to Port.Drop or Port.Refuse. A path switch that is given up is counted in
// Stats.Unordered.
//
//   - Tokens. Every envelope carries the fencing token it was routed by. A Router forwards
//     mail only to a newer ownership, and waits with mail that was routed by newer
//     knowledge than its own. So loops are impossible, and a node may get mail before it
//     knows that it holds the name.
//   - Custody. A node that was handed kept mail (an actor's backlog, another node's
//     custody, markers) answers for it: it delivers it, hands it on with Port.Keep, or
//     drops it with a count. A Router sends nothing again. What the channel returns goes
//     first again.
//   - Path switches. A Router that learns of a move sends a marker the old way, behind all
//     that it sent there. Old holders forward the marker behind that mail. The Router holds
//     mail back until the present holder answers the marker.
//   - Asks. A Router with custody of mail first asks the holder, by a marker, whether it is
//     open: a backlog goes to a node that works, not to one that has yet to start.
package route
