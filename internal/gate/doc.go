// Package gate stands between an actor's mailbox and the actor. It checks the lease
// for every message when the message is taken from the mailbox.
//
//	g, err := gate.New(gate.Options{Term: term, Divert: takeBack, OnLost: stopIt})
//	pid := root.Spawn(g.Props(props)) // kept private: mail comes by g.Post
//	g.Drain()                         // a planned end: then stop the actor, wait for g.Done()
//
// A guarded actor works under one ownership of a lease (a lease.Term). The gate promises:
//
//   - No message, continuation or (re)start runs unless the term was alive by a clock
//     reading taken for that very message, after it left the mailbox.
//   - The gate's context is done, and OnLost was called, before the gate refuses the
//     first message because the term ended. context.Cause says why.
//   - Every message that reached the mailbox is taken by the actor or diverted, exactly
//     once and in the order of the mailbox, also if the actor was stopped, crashed or
//     lost its lease. protoactor forgets such mail.
//   - A stop ends the actor, even if its Stopping or Stopped handler panics. protoactor
//     leaves such an actor behind for ever, with its parent waiting.
//   - Done follows when the actor has ended and its backlog has been diverted. Terminated
//     comes earlier.
//
// The gate can't interrupt a handler. One that still runs when the term ends overruns: its
// context is done, the overrun is counted, and a fencing token has to keep its writes out.
//
//	senders ──▶ front door ──Post──▶ mailbox ──take──▶ gate ──pass──▶ actor
//	                ▲                                   │
//	                └──────────── guardian ◀── Divert ──┘
//	                                 ▲── OnLost, OnDone
//
// The guardian makes a Gate for each life of an actor. A planned end is: Drain, stop the actor,
// wait for Done. A loss is: OnLost, stop the actor, wait for Done. Done needs no call of the
// guardian's, even if the actor crashed and its mailbox is suspended. What each mode of a gate
// lets through stands above type Mode.
//
// Mail that Gate.Post brings after the end is diverted, also from a sender that had resolved
// the PID before. Other mail by PID goes to the dead letters then.
package gate
