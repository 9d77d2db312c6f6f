// Package singleton runs an actor in one place at a time: on the node that holds
// a lease.
//
//	m, err := singleton.Start(system, keeper, "scheduler", props)
//	system.Root.Send(m.PID(), job) // from any node that started it
//
// # What it promises
//
//   - The child made from props runs on the node that holds the lease
//     "singleton/<name>", and nothing is processed by it without that lease:
//     every message passes a gate that checks the lease as it is taken from the
//     mailbox (see Of for what the child knows of it).
//   - The lease is released only after the child has ended. A child that does not
//     stop is reported at growing intervals and never doubled: the lease is kept,
//     or, if it was lost, left to its TTL, and nothing new is started here.
//   - A loss stops the child at once. Its context is done before it is refused
//     the first message; what was queued is taken back, in order.
//   - A child that ends by itself is started anew after a growing pause, under
//     the same lease, and finds what was queued, in order; or it is final
//     (WithTerminal).
//   - Manager.PID is the front door: it delivers to the child wherever that runs,
//     with the sender, and keeps a bounded number of messages while there is no
//     host.
//
// Delivery is at most once between nodes: what was on its way to a node that
// dies is lost, and so is what that node had queued. Ask for answers, and send
// again. What no lease can promise (a handler that was already running when the
// lease ended, a process paused between the check and the handler) needs the
// fencing token: Guarded.Token.
//
// # The manager
//
// Each node has one manager for a singleton, an actor. Its states and
// transitions are the pure function in machine.go:
//
//	           free, or leader                 true
//	Standby ───────────────────▶ Acquiring ──────────▶ Starting ──▶ Active ◀─┐
//	   ▲                             │                     ▲        │ │ │    │
//	   │ ◀──── false, error: wait ───┘                     │        │ │ │    │
//	   │                                       backoff over│        │ │ │    │
//	   │                               Backoff ────────────┘        │ │ │    │
//	   │                             ▲    │                         │ │ │    │
//	   │                             └────┼───── child ended ───────┘ │ │    │
//	   │                                  │ lost, not to host         │ │    │
//	   │                                  ▼                           │ │    │
//	   └──────────── released ──────── Releasing ◀─ child ended ─┐    │ │
//	                                      ▲                      │    │ │
//	                                      │              HandingOver ◀┘ │ stop, leader elsewhere
//	                                      │                   │ lost    │
//	                                      │                   ▼         │
//	                                      └─ child ended ─ Stopping ◀───┘ lost
//
// "Child ended" means that the actor has ended and all its mail is back. From
// every state Manager.Stop leads to Closed, through the same steps.
//
// Without a source of leadership the lease itself elects, and the host stays
// put. With one (WithLeadership) the node that leads acquires, and hands over
// when it leads no more.
//
// # Who calls whom
//
//	users ──▶ Manager.PID ─▶ controller (actor) ─▶ proxy ─┬─▶ gate ─▶ child      this node hosts
//	                            │       ▲                 ├─▶ manager over there  another does
//	             machine.next ◀─┘       │                 └─▶ buffer              nobody does
//	                            │       │
//	                         effects ───┴── lease, timers, directory (who holds what)
//
// Envelopes between nodes carry the fencing token they were routed by. A node
// forwards one only to an ownership that is newer, and keeps one that was routed
// by newer knowledge than its own: so nothing goes round in circles.
package singleton
