// Package handover moves a name from the host that it had to the one that it has next:
// its lease, and the states that its actors leave. It is used for singletons, which have
// one state with the key "", and for shards, which have one for each entity.
//
// # The machine
//
// Machine is what becomes of the lease on one node, as a pure function of state and event.
// Giving and Accepting are the two sides of a hand-over: they wait, ask and answer, and
// feed the Machine by their Port. What runs under the lease, and who says where it is to
// be, is the owner's. A singleton's manager has a small machine of its own around this one:
// it seeks the lease, and starts its child anew when that ends by itself. A shard obeys the
// orders of its coordinator.
//
//	phase         of a singleton      of a shard          what leads on
//	Away          standby, closed     away                Host, Asked
//	Acquiring     acquiring           acquiring           Won, NotWon
//	Offering      offering            offering            OfferMade, OfferFailed, OfferOver
//	Offered       offered             offered             Taken, OfferOver, Host
//	Adopting      adopting            adopting            Won, NotWon
//	Opening       starting, backoff   (within a step)     Opened, Ended, Lost
//	Active        active              active              Move, Quit, Reopen, Ended, Lost
//	Inviting      inviting            inviting            Invited, Declined, Resign, Keep, Lost
//	Draining      handing over        draining            Ended, Overdue, Declined, Lost
//	Asking        asking              asking              Invited, Declined, Lost
//	Transferring  transferring        transferring        Transferred, Stale, NotTransferred
//	Yielding      yielding            yielding            Ended, YieldOver, Lost
//	Stopping      stopping            stopping            Ended
//	Releasing     releasing           releasing           Released
//
// Orders come from a singleton's own machine (wanted, preferredElsewhere, stop), a shard's coordinator
// (Host, Move) and its node (Quit, Stay). What both have in common:
//
//   - a node that can't make an offer within OfferWait says no, before it is taken for one
//     that can't be reached (InviteWait); a node that did not answer is told that the
//     invitation is off;
//   - while what runs takes its time to stop the offer is made anew, each third of its
//     lifetime. If that fails the last one stands while it is good; then the host is told,
//     and the offer stands until the host calls it off;
//   - nothing is transferred to an offer that is older than half of its lifetime: a new one
//     is asked for, once, with nothing running (Asking);
//   - a loss is told in every phase with something running, also when that was shut off;
//   - a former host goes on forwarding for QuietPeriod.
//
// # The states
//
//	old host                                      next host
//	  Budgets.Left ◀── States of ended actors
//	  Send:  EntityState{1 of n}  ────────────▶   Taking ──▶ Budgets.Taken
//	         …  in the channel's window
//	         EntityState{n of n}  ────────────▶
//	         HandedOver{n}        ────────────▶   complete: what is missing of n is told
//
// All of these are kept frames (package transport): they come exactly once and in
// order while both nodes live.
//
// # Who tells of a cold start
//
// If an actor's next life does not get a state, one node tells it, once:
//
//	what became of it                               told by
//	no room in a Budget, or too large               the node that had no room
//	the hand-over was called off                    the old host
//	it came, and could not be used                  the next host
//	it came after the next host went on             the next host, as too late
//	it did not come, and HandedOver did             the next host, by the count
//	it did not come, nor did HandedOver, and …
//	  the next host is gone                         the old host: all of the hand-over
//	  the next host lives and took a state          the next host, by the count of that one, after LateFor
//	  the next host lives and took none             the old host: all
//
// If the old host dies before any state came, the number of states is not known: the
// next host tells once, without a number. Where a link ends for good with states taken
// whose acknowledgements were lost, one may be told on both nodes.
//
// # Waiting
//
// The next host waits for HandedOver before it takes up the lease, for Patience: most
// of what is left of its offer's lifetime, or BrokenWait once the link is known to be
// broken.
package handover

import "time"

// BrokenWait is how long the old host's word is waited for once the link to it broke.
const BrokenWait = 300 * time.Millisecond

// LateFor is how long after a host went on without word what it still lacks is waited
// for, to be told one by one. It is longer than a channel keeps frames for a node that
// it can't reach.
const LateFor = 90 * time.Second

// Patience is how long a next host waits for word, left being what is left of its
// offer's lifetime: the last quarter is for taking up the lease. broken says that the
// link to the old host broke.
func Patience(left time.Duration, broken bool) time.Duration {
	d := max(0, left/4*3)
	if broken {
		return min(d, BrokenWait)
	}
	return d
}
