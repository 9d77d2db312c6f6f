// Package memnet connects the actor systems of one process for tests. It stands
// in for package remote, works under testing/synctest, is free of data races,
// and lets a test cut, slow down, stall, lose, freeze and kill.
//
// # What is like remote
//
//   - Every message is turned into Protocol Buffers bytes on the sender's
//     goroutine and back on the receiver's side, system messages included. What
//     can't be turned into bytes is a dead letter of the sender's system, what
//     can't be read is one of the receiver's.
//   - A message with a header or a PID that is not valid UTF-8 ends the link, and takes
//     along what is queued there.
//   - Messages of a node to a node stay in order, whatever their kind; between
//     different pairs there is no order. At most once.
//   - Watching an actor that does not exist, or that stops, gives Terminated with
//     reason Stopped; a broken link gives AddressTerminated, once per watch, and
//     an EndpointTerminatedEvent on the event stream of the sending side, if that
//     ever sent anything over it: a node that only hears of another, and never
//     answers, is told nothing of its death. One that sends what can't arrive, and
//     had no link, is told two seconds later.
//
// # What differs
//
// A link breaks, and tells its watchers, at the moment of Cut or Kill. Mail sent
// over a link that is cut, or to an address without a node, becomes a dead
// letter of the sender's system as soon as its turn comes; remote retries for
// seconds first. For a black hole, which tells no node anything, use SetLoss,
// Stall or Freeze.
//
// A sender's queue is bounded, and what does not fit is a dead letter; remote's
// has no bound. Peak tells how much of it was used, Wire and Stats what went over
// the links, so that a test can tell congestion from waste.
//
// # How
//
// Sending never waits: it appends to the link's queue. A goroutine drains the
// queue of one link and ends when there is nothing to do at this moment, so an
// idle, frozen or waiting net has no goroutines:
//
//	           send                       due                 posted
//	sender ───────────▶ queue (bounded) ───────▶ drain ───────────────▶ mailbox
//	             │          │                      ▲
//	        loss, full    cut, kill       timer, Thaw, Unstall, send
//
// When a message leaves and arrives is planned as it is queued: it leaves once
// those before it have, at the link's bandwidth, and then travels for its delay.
// Shape and Unstall plan anew what has not left.
//
// Delivering on the sender's goroutine would be simpler and was rejected: a
// sender would wait for a bounded mailbox of another node and could deadlock
// with it, a handler would run inside the sender's locks, and delays and frozen
// nodes need a queue anyway.
//
// # In a bubble of testing/synctest
//
// Fake time stands still once the function of a bubble has returned, and an
// actor system logs dead letters with a goroutine that ends a second later. End
// the function with a sleep of two seconds, deferred so that a failing test does
// it as well; else the bubble reports a deadlock.
package memnet
