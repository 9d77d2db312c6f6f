package leasetest

import "time"

// readGranted lets time pass between two ownerships, and looks at the first again and again.
// A store that does not tell is asked for nothing.
func readGranted(t *T) {
	n, other := t.node(), t.node()
	pause := max(t.tick(), 20*time.Millisecond)
	r := n.win("a")
	if r.Granted.IsZero() {
		other.stands(r, ruleSeenByAll)
		return
	}
	for range 3 {
		time.Sleep(pause)
		n.renew()
		other.stands(r, ruleGranted)
	}
	next := n.winClaim(t.supersede(r), ruleSupersede)
	other.stands(next, ruleGranted)
	// By one node, or by the store: of one clock, unless it is stepped.
	t.check(next.Granted.After(r.Granted), ruleGranted, "%v after an ownership of %v", next.Granted, r.Granted)
	n.freed(next)
}
