// Package gate stands between an actor's mailbox and the actor: every message
// is let through, or refused, at the moment it is taken from the mailbox.
//
// A guarded actor works under one ownership of a lease (a lease.Term). The gate
// promises:
//
//   - No message, continuation or (re)start runs unless the term was alive by a
//     clock reading taken for that very message, after it left the mailbox.
//   - The gate's context is done, and OnLost was told, before the first message
//     is refused because the term ended. context.Cause says why.
//   - Every message that reached the mailbox is either taken by the actor or
//     diverted, exactly once and in the order of the mailbox, whether the actor
//     was stopped, crashed or lost its lease. protoactor forgets such mail.
//   - A stop ends the actor, also where its Stopping or Stopped handler panics.
//     protoactor leaves such an actor behind for ever, with its parent waiting.
//
// It can't interrupt a handler. One that still runs when the term ends is an
// overrun: its context is done, it is counted, and a fencing token has to keep
// its writes out. The same is true of a process that is paused between the
// check and the handler.
//
// # Modes
//
//	        Drain
//	open ─────────▶ draining
//	  │                │
//	  │ Lose, or term  │ Lose, or term
//	  │ not alive      │ not alive
//	  ▼                ▼             actor ended, or Close
//	  └────────────▶ lost ──────────────────▶ ended
//	                  (open and draining lead to ended as well)
//
//	what is taken                open     draining  lost      ended
//	front-door mail              passes   diverted  diverted  diverted
//	other mail, PoisonPill       passes   passes    diverted  diverted
//	continuations                pass     pass      withheld  withheld
//	Started                      passes   passes    withheld  withheld
//	Restart                      passes   passes    → Stop    withheld
//	Terminated of a child        passes   passes    lifecycle withheld
//	Terminated of another        passes   passes    withheld  withheld
//	Stop, Failure                ─────── lifecycle ───────    (see below)
//	Watch, Unwatch               ─────── lifecycle ───────    (see below)
//
// "Passes" means: while the term is alive by the clock; the first check that
// fails makes the mode lost. "Lifecycle" is what protoactor needs to end the
// actor and its children; it is always handed on, so Stopping and Stopped
// handlers run after a loss, under a context that is done, and may clean up. It
// is handed on until the actor has ended; then a Watch is answered with
// Terminated and the rest is dropped. An actor that outlives Close is treated as
// lost until then.
//
// An actor whose Started was withheld never worked, so it sees neither Stopping
// nor Stopped: the gate ends it by itself. After a loss a Restart is made a
// Stop, and a restart that was waiting for children becomes a stop too, since a
// new incarnation would run under a dead term. Once an actor has begun to stop,
// front-door mail is diverted (its children may keep it waiting), a Restart is
// withheld, and the rest passes until it ended.
//
// # Who calls whom
//
//	senders ──▶ front door ──Post──▶ mailbox ──take──▶ gate ──pass──▶ actor
//	                ▲                                   │
//	                └──────────── guardian ◀── Divert ──┘
//	                                 ▲── OnLost, OnDone
//
// The guardian makes a Gate for each life of an actor, spawns the actor with
// Gate.Props and keeps its PID private. A planned end is: Drain, tell the actor
// to stop, wait for Done. A loss is: OnLost, Stop, wait for Done. Done comes
// after the actor has ended and all that was queued then has been diverted; it
// needs no call of the guardian's, also for a crashed actor whose mailbox is
// suspended. protoactor's Terminated is sent earlier, before the backlog has
// been diverted.
//
// Mail that is posted after the end: through Post, or by a sender that had
// resolved the PID before, it is diverted; by PID otherwise, protoactor sends
// it to the dead letters. Use Post.
package gate
