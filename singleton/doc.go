// Package singleton runs an actor in one place at a time: on the node that holds
// a lease.
//
//	m, err := singleton.Start(system, keeper, "scheduler", props)
//	system.Root.Send(m.PID(), job)                          // from any node that started it
//	answer, err := singleton.Ask[string](ctx, m, question)  // the same, and wait
//	err = singleton.StopAll(ctx, system)                    // before the Keeper is closed
//
// # What it promises
//
//   - The child made from props runs on the node that holds the lease "singleton/<name>". It
//     processes nothing without that lease: every message passes a gate that checks the
//     lease when the message is taken from the mailbox. Of tells the child its lease.
//   - The lease is released or transferred only after the child has ended. A child that does
//     not stop is reported at growing intervals and never doubled: the lease is kept, or, if
//     it was lost, left to its TTL, and no other child is started here. (WithOverdue with
//     hosting.ReleaseAfterTTL is the one exception.)
//   - A loss stops the child at once. Its context is done before the gate refuses the first
//     message. Queued messages are taken back, in order.
//   - A child that ends by itself is started anew after a growing pause, under the same
//     lease, and finds the queued messages, in order; or its end is final (WithTerminal,
//     WithRestartBudget).
//   - Props, which make the child, run on a goroutine of their own and may hang: after 30 s
//     the child is given up, and the lease is released (Start).
//   - A planned change of host transfers the lease, with the child's state if the child is
//     hosting.Stateful. While links live and no bound is exceeded, no message is lost or
//     doubled by it, and each sender's messages stay in order.
//   - Manager.PID is the front door: it delivers to the child on the node that hosts, with
//     the sender, and keeps a bounded number of messages while there is no host, or no room
//     on the way to it. A message that falls out of a bound is counted, and its sender is
//     told (hosting.Undeliverable).
//
// Messages may be lost when a link breaks, and when a node dies with what it had queued. A
// message comes twice only if one node handed it over to the next, and that died or was
// unreachable before it had confirmed. Ask for answers, and send again. No lease can stop a
// handler that was already running when the lease ended, or a process that was paused
// between the check and the handler: that needs the fencing token, Guarded.Token.
// docs/semantics.md has all of this at length, with bounds.
//
// # The manager
//
// Each node has one manager for a singleton, an actor. Its phases and transitions
// are a pure function, around that of package handover. How a node becomes the host:
//
//	         free, or to host               won             made
//	Standby ──────────────────▶ Acquiring ───────▶ Starting ─────▶ Active ⇄ Inviting
//	   │ invited                                    ▲    ▲           │
//	   └───────▶ Offering ─▶ Offered ─▶ Adopting ───┘    │           │ child ended
//	                                              won    └─ Backoff ◀┘ by itself
//	                                            pause over
//
// Every other outcome of Acquiring to Adopting (another node has the lease, the outcome is
// not known, the hand-over was called off) leads back to Standby, to wait. A lease that was
// won and is not wanted any more leads to Releasing. How a node ceases to be the host:
//
//	          an offer, or                      ended, with an offer
//	Inviting ──────────────▶ HandingOver ─────────────────────▶ Transferring ─▶ Standby
//	          no node to ask   │      │ ended, without one           │ failed
//	           overdue, yields │      └──────────▶ Releasing ◀───────┘
//	                           ▼                    ▲     └─ done ─▶ Standby
//	                        Yielding                │
//	             a TTL later   ▼                    │
//	             lost ───▶ Stopping ─── ended ──────┘
//
// "Ended" means that the actor has ended and all its mail is back. If the offer is too old
// by then, a new one is asked for before the lease is transferred (Asking). A lease that is
// lost leads from every phase with a child to Stopping, and from Starting, too, as does a
// child that is not made in time; from Backoff to Releasing, as does the end of a child
// that is final (from Active) or on its way out (from Inviting). In Yielding the child may
// still end, as in HandingOver. From every phase Manager.Stop leads to Closed, through the
// same steps.
//
// # A planned change of host
//
// The host begins it: because it is stopped, because a source of leadership
// (WithLeadership) has pointed elsewhere for the time of WithSettle, or because a
// node that is preferred to it (WithPreferred) has told of itself. Without any of
// these the lease elects and the host stays put. A node that may host tells the host so
// (Candidate): whenever it learns of one, soon after the link to it broke, and every 15 s.
// One that was not heard of for three such intervals is forgotten.
//
//	host                                            the other
//	 │ ◀───────────────── Candidate ──────────────────  │
//	 │  Inviting          Invite                        │  Offering
//	 │ ────────────────────────────────────────────▶    │
//	 │ ◀───────────────── Offer, or declined ─────────  │  Offered
//	 │  HandingOver: gate draining, child stops, ends   │
//	 │  Transferring: lease.Transfer                    │
//	 │ ───────────────── state, HandedOver ──────────▶  │  Adopting, Starting
//	 │ ───────────────── backlog, stragglers ────────▶  │
//
// The child works on until there is an offer. With a source of leadership the leader alone
// is asked; without one, the nodes that are preferred, the best first. A manager that ends
// asks the leader and then the candidates: preferred ones first, then those that were heard
// of last, and those that are late, or whose link broke, at the end. A node that does not
// answer within a second is passed over; after five of them the others are not asked. If
// no node makes an offer:
//
//   - a manager that ends stops its child and releases the lease;
//   - if the leader can't be reached, so does the host, and the lease decides;
//   - if the leader says no (it can't reach the store, say), the child stays, and
//     the host asks again every second: better here than nowhere;
//   - a move to a better node is given up until that tells of itself again.
//
// A transfer that fails or is not known to have succeeded becomes a release, which
// does nothing if the other has the lease. The other goes by its record, with or
// without word, and starts cold without.
//
// # Who calls whom
//
//	                                              ┌─▶ gate ─▶ child          this node hosts
//	users ──▶ Manager.PID ─▶ controller ─▶ proxy ─┼─▶ transport ─▶ manager   another does
//	                          │       ▲           └─▶ buffer                 no host known, or no room
//	             machine.next ◀       │
//	                          │       │
//	                       effects ───┴── lease, timers, directory (who holds what),
//	                                      links that break, the source of leadership
//
// The controller is the actor: it plays both sides of a hand-over, the one that hosts and
// the one that takes over, follows the leader, and makes and stops the child. Package
// handover sends the child's state. The proxy gives package route what it needs, and that
// decides where mail goes: envelopes carry the fencing token they were routed by, so
// nothing goes round in circles, and a marker, sent the old way behind all mail, tells when
// the new way may be used. Package transport carries the mail, in a window for each node:
// what a child had not taken is kept until the next node has custody of it. What nodes must
// agree on, versions and settings, the host's record says.
//
// Beside the manager stand Ask, Health, and StopAll for the end of a program. Package node has
// the whole of it in one call.
package singleton
