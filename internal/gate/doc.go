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
package gate
