// Package route moves the mail of one leased name to whoever holds the name, and
// keeps it whole and in order while the name moves.
//
// Every node that sends mail to a name has a Router for it: the node that holds
// the name, nodes that held it, nodes that never will. A Router belongs to one
// actor and does nothing by itself: what it wants done it asks of its Port.
//
//	           Accept                    Deliver
//	locals ───────────▶ Router ─────────────────────▶ the actor behind its gate   held here
//	           Envelope   │  ▲  ──── Envelope, Relay ─▶ another node's Router      held there
//	nodes ────────────────┘  └── Back ── gate (what it refused)
//	                      └──▶ buffer                                              nobody known
//
// # What it promises
//
// While links live and no bound is exceeded, mail is not lost, not doubled, and
// what one sender sent stays in order, however often the name moves. What falls
// out of a bound goes to Port.Drop; what was given up as to order is counted
// (Unordered).
//
//   - Tokens. Every envelope carries the fencing token it was routed by. A Router
//     forwards one only to an ownership that is newer, and waits with one that
//     was routed by newer knowledge than its own. So nothing goes round in
//     circles, and a node may be sent mail before it knows that it holds the name.
//   - Relays. What a node has accepted for others (the backlog of an actor that
//     had to go, stragglers) is forwarded numbered and kept until the next node
//     has taken it up. At most a window of it is under way at a time.
//   - Crossings. A Router that learns that the name moved sends a marker the old
//     way, behind all it sent there. Old holders forward it behind that mail. It
//     holds back what would overtake until the present holder answers the
//     marker, the old way is found broken, or a time has passed.
//
// # A crossing
//
//	          the name moved, and mail went the old way
//	direct ────────────────────────────────────────────▶ crossing (mail waits)
//	   ▲                                                    │
//	   ├── answered by the holder, or the marker came home ─┤
//	   ├── the node on the old way is gone ─────────────────┤   what it had not
//	   └── too long: Unordered ─────────────────────────────┘   acknowledged is sent anew
//
// A marker is mail like any other to those it passes; so it waits where mail
// waits. One that comes back to its sender proves as much as an answer: all that
// went before it came back, too. Two nodes that cross by way of each other at
// the same time would wait for each other; the time limit ends that. It takes
// two moves of the name within one round trip.
package route
