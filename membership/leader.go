package membership

import "github.com/holdfast-go/holdfast/lease"

// LeaderChanged names the leader from now on. A Group's goes to WithEvents, too.
type LeaderChanged struct {
	// Group is the group's name; empty where the source of leadership is none.
	Group string
	// Leader leads now, and Previous is the leader that this follower was last told of. The
	// zero Owner means that there is none, or that it is not known.
	Leader, Previous lease.Owner
	// IsSelf: the leader is the node that was asked. For a Group's election it is
	// true only while that node's own term of leadership is alive.
	IsSelf bool
	// Skipped is how many changes before this one the follower was not told,
	// because it was behind. Only if there were some can Leader equal Previous:
	// there was another leader, or none, meanwhile.
	Skipped int
}

// Leadership is a source of leadership for one node.
type Leadership interface {
	// Follow calls f with the present leader, as soon as that is known, and then
	// with every change, each once, in order and one call at a time, until stop. A
	// follower that falls behind gets the newest only, and LeaderChanged.Skipped
	// how many it missed. The sources of this package are never held up by f, and
	// stop may be called from it; it does not wait for a call that has begun, and
	// none begins after it.
	Follow(f func(LeaderChanged)) (stop func())
}

// changed makes the event for a follower that last got previous.
func changed(group string, self, previous, leader lease.Owner, skipped int) LeaderChanged {
	return LeaderChanged{Group: group, Leader: leader, Previous: previous, Skipped: skipped,
		IsSelf: leader.Incarnation != "" && leader.Incarnation == self.Incarnation}
}
