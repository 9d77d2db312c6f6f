// Package singleton runs an actor in one place at a time: on the node that holds a lease.
//
//	m, err := singleton.Start(system, keeper, "scheduler", props)
//	system.Root.Send(m.PID(), job)                          // from any node that started it
//	answer, err := singleton.Ask[string](ctx, m, question)  // the same, and wait
//	err = singleton.StopAll(ctx, system)                    // before the Keeper is closed
//
// It promises:
//
//   - The child made from props runs on the node that holds the lease "singleton/<name>". A
//     gate checks the lease for every message when it is taken from the mailbox. Of gives
//     the child its lease.
//   - The lease is released or transferred only after the child has ended. A child that does
//     not stop is reported at growing intervals and keeps the lease, or the lease ends by
//     its TTL; no second child starts here. (WithOverdue with hosting.ReleaseAfterTTL is
//     the one exception.)
//   - A loss stops the child at once. Its context is done before the gate refuses the first
//     message. Queued messages are taken back, in order.
//   - A child that ends by itself is restarted after a growing pause, under the same lease,
//     with the queued messages. A child whose Props hang for 30 s is given up, and the
//     lease is released.
//   - A planned change of host transfers the lease, and the child's state if it is
//     hosting.Stateful. While links live and no bound is exceeded, it loses and doubles no
//     message and keeps each sender's order.
//   - Manager.PID delivers to the child on the node that hosts, and keeps a bounded number of
//     messages without a host. The sender of a message that exceeds a bound gets
//     hosting.Undeliverable.
//
// A node that dies loses its queued messages, and a link that breaks may lose those under
// way. A message comes twice only if one node handed it over to the next, which died or was
// unreachable before it confirmed. Ask for answers, and send again. A handler that was
// running when the lease ended acts late: that needs the fencing token, Guarded.Token.
// docs/semantics.md has all of this at length.
//
//	senders ──▶ Manager.PID ──┬──▶ gate ──▶ child            this node hosts
//	                          ├──▶ another node's Manager    that one does
//	                          └──▶ buffer                    no host known, or no room
package singleton
