// Package handover moves a name from its present host to the next: its lease, and the
// states of its actors. A singleton has one state, with the key ""; a shard has one for each
// entity.
//
//	m, effects := m.Next(handover.Move) // the owner carries the effects out
//	giving.Ask(port, invites, node, f)  // the old host's side
//	accepting.Invited(port, budget, invite, lost) // the next host's side
//
// Machine is the lease on one node as a pure function of state and event. Giving and
// Accepting are the two sides of a hand-over: they wait, ask and answer, and feed the
// Machine by their Port. The owner decides where the name should be and runs what works
// under the lease: a singleton's manager by a small machine around this one, a shard by the
// orders of its coordinator. The phases are listed above type Phase.
//
//	old host                                      next host
//	  Budgets.Left ◀── States of ended actors
//	  Send:  EntityState{1 of n}  ────────────▶   Taking ──▶ Budgets.Taken
//	         …  in the channel's window
//	         EntityState{n of n}  ────────────▶
//	         HandedOver{n}        ────────────▶   complete: it reports what is missing of n
//
// It promises:
//
//   - States arrive exactly once and in order while both nodes live: all of these are kept
//     frames (package transport).
//   - If an actor's next life gets no state, one node reports it, once.
//   - A node that can't make an offer within OfferWait declines, before the host takes it
//     for unreachable (InviteWait). The host calls off an invitation that was not answered.
//   - The host renews the offer every third of its lifetime while the actors stop. If a
//     renewal fails, the last offer stands while it is good.
//   - The host transfers nothing to an offer older than half of its lifetime. It asks for
//     a new one, once, when nothing runs any more (Asking).
//   - The host reports a loss in every phase in which something runs.
//   - A former host forwards mail for QuietPeriod.
//
// The next host waits for HandedOver before it takes up the lease, for three quarters of what its
// offer has to live: the last quarter is for taking up the lease. Once the link to the old host
// broke it waits for BrokenWait at most.
package handover

import "time"

// BrokenWait is how long the next host waits for HandedOver once the link to the old host broke.
const BrokenWait = 300 * time.Millisecond

// LateFor is how long a host that went on without HandedOver waits for missing states, to
// report each of them. It is longer than a channel keeps frames for a node that it can't
// reach.
const LateFor = 90 * time.Second
