// Package handover moves a name from the host that it had to the one that it has next:
// its lease, and the states that its actors leave. It is used for singletons, which have
// one state with the key "", and for shards, which have one for each entity.
//
// Machine decides what becomes of the lease on one node, as a pure function of state and event.
// Giving and Accepting are the two sides of a hand-over: they wait, ask and answer, and feed the
// Machine by their Port. Send hands the states over, and Taking collects them:
//
//	host      Invite ─────────────▶   next host    Giving ⇄ Accepting
//	          ◀───────────── Offer
//	          lease.Transfer                       Machine, on both
//	          EntityState … ──────▶                Sending ─▶ Taking
//	          HandedOver ─────────▶   lease.Adopt
//
// What runs under the lease, and which node should have it, is the owner's affair.
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
