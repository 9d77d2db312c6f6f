// Package memnet connects the actor systems of one process for tests, in place of
// package remote. It works under testing/synctest and is free of data races. A test can
// cut, slow down, stall, lose, freeze and kill.
//
//	net := memnet.New()
//	net.Join(system, "a") // once for each node
//	net.Cut("a", "b")
//	net.Heal("a", "b")
//
// What is like remote:
//
//   - The sender's goroutine turns every message into bytes, system messages included, and
//     the receiver's side reads them. What can't be encoded is a dead letter of the sender's
//     system, what can't be read is one of the receiver's.
//   - A header or a PID that is not valid UTF-8 ends the link, and loses its queue.
//   - Messages from one node to another stay in order and arrive at most once.
//   - Watching an actor that does not exist, or stops, gives Terminated with reason Stopped.
//     A broken link gives AddressTerminated, once for each watch, and an
//     EndpointTerminatedEvent on the sending side, if that side ever sent over the link. A
//     node without a link whose message can't arrive gets the event two seconds later, or before
//     a message that makes the link.
//
// What differs: a link breaks at the moment of Cut or Kill. Mail over a cut link, or to an
// address without a node, becomes a dead letter of the sender's system when its turn
// comes; remote retries for seconds first. For a black hole use SetLoss, Stall or Freeze.
// A sender's queue is bounded, remote's is not; what does not fit is a dead letter.
//
//	           send                       due                 posted
//	sender ───────────▶ queue (bounded) ───────▶ drain ───────────────▶ mailbox
//	             │          │                      ▲
//	        loss, full    cut, kill       timer, Thaw, Unstall, send
//
// Sending never waits. One goroutine drains a link's queue and ends when nothing is due, so
// an idle, frozen or waiting net has no goroutines. Delivery on the sender's goroutine was
// rejected: a bounded mailbox of another node could block the sender.
//
// Fake time stops when the function of a synctest bubble returns, but an actor system's
// goroutine that logs dead letters ends a second later. End the function with a deferred
// sleep of two seconds; else the bubble reports a deadlock.
package memnet
