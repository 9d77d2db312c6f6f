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
//
// # States
//
//	phase    the actor here       mail from here and elsewhere
//	away     none                 goes to the host of the records, or waits
//	open     takes mail           is delivered
//	ending   is done              waits, until Closed, or Left
//
//	path        what is known of the way that mail went last
//	none        nothing went that may still be under way: the next way is taken at once
//	used        something went: a new way needs a path switch
//	dead        the link broke since: a new way needs none, and what is kept is recalled
//	confirmed   the holder there has said that it is open: custody may be handed over
//
//	pending   what it waits for                                       ends by
//	none
//	switch    the answer of the holder to the marker on the old way   an answer, the marker itself, a broken link, Patience
//	ask       the answer of the holder at the end of the path         an answer, a broken link, another path
//
//	event              phase           path                               pending
//	Open               open            here, once nothing is under way    by path
//	Ending             open → ending
//	Ending(lost)       and away after Patience, if another hosts
//	Closed             ending → away   here → none
//	Left               ending → away   here → none, Unordered
//	Host               -               unused: the new host's             used: none → switch
//	forward            -               used
//	Gone               -               used → dead, not confirmed         of that link → none
//	Linked             -               dead → used
//	Returned           -               not confirmed
//	kept mail, path not confirmed                                         none → ask
//	answer             -               the holder's, used, confirmed      → none
//	answer, stale      -               the former holder's, used          → switch by way of that holder; an ask goes on
//	the same again     -               none, Unordered                    → none
//	answer, later      open            none, Unordered                    → none
//	marker comes back  -               none                               → none
//	MarkerWaits        -               -                                  the switch goes on for Patience
//	Patience is over   -               none, Unordered                    → none; an ask is repeated, with pauses that double
//
// # Tokens of a Router
//
//   - own is the token of the last actor that was open here. Mail goes to other nodes only
//     by tokens above it.
//   - floor is below own: the highest token known to be of an earlier ownership, this
//     node's or another's. Mail that was routed to this node by a token between floor and
//     own came by no old way: it is fresh, and waits for no path switch.
//
// # Order in the queue
//
// A lane holds what was routed by one token. Lanes go by token, the highest first: mail of
// one sender that was routed by newer knowledge is older, because it came back from where
// the sender's later mail does not go any more. What an actor here had has a lane before
// that of its token: it is older than all that was routed to it since, but of a backlog the
// first may have gone to another node, and be back by a later token while the rest still
// waits. What came back from a node that is gone goes before all. Mail with a token yet to
// come is passed over; it takes half of the bound at most, and is refused after TTL.
//
// # Limits
//
// Two nodes that cross by way of each other wait for each other until Patience is over.
// It takes two moves of the name within one round trip. A link that carries nothing for
// longer than Patience has path switches given up, and counted.
package route
