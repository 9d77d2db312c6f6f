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
//   - A child that ends by itself is started again after a growing pause, under the same
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
package singleton
