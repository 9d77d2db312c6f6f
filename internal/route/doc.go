// Package route moves the mail of one leased name to the node that holds the name, and
// keeps its order while the name moves.
//
// Every node that sends mail to a name has a Router for it. A Router belongs to one actor
// and has no goroutine: its owner calls it, and it acts through its Port.
//
//	r := route.New(config, port)
//	r.Open(token)              // the actor here takes mail, under this token
//	r.Accept(item)             // a message of this node
//	r.Receive(msg, size, kept) // one of another node
//
//	           Accept                 Deliver
//	locals ───────────▶ Router ──────────────────▶ the actor behind its gate   held here
//	           Receive    │  ▲  ──── Send, Keep ──▶ another node's Router      held there
//	nodes ────────────────┘  └── Back ── gate (what it refused)
//	                      └──▶ queue                                           no host known, or no room
//
// While links live and no bound is exceeded, mail is neither lost nor doubled, and what one
// sender sent stays in order, however often the name moves. A message that exceeds a bound
// goes to Port.Drop or Port.Refuse. Stats.Unordered counts path switches that were given up.
//
//   - Tokens. Every envelope carries the fencing token it was routed by. A Router forwards
//     mail only to a newer ownership, and keeps mail that was routed by newer knowledge than
//     its own until it has that knowledge. So mail never goes in circles.
//   - Custody. A node that accepted kept mail (an actor's backlog, another node's custody,
//     markers) delivers it, hands it on with Port.Keep, or drops it with a count. What the
//     channel returns goes first again.
//   - Path switches. A Router that learns of a move sends a marker the old way, behind all
//     mail that it sent there. Old holders forward the marker behind that mail. The Router
//     holds mail back until the present holder answers the marker.
//   - Asks. A Router with custody of mail first asks the holder, by a marker, whether it is
//     open. So a backlog goes only to a node whose actor works.
//
// Two nodes that cross by way of each other wait for each other until Patience is over; that
// takes two moves of the name within one round trip. After Patience without progress on a
// link its path switches are given up and counted. The states are listed above type Port, the
// order in the queue above type lane.
package route
