package membership

import "github.com/holdfast-go/holdfast/lease"

// LeaderChanged says who leads from now on. A Group's is also published on the
// actor system's EventStream, as a value.
type LeaderChanged struct {
	// Group is the group's name; empty where the source of leadership is none.
	Group string
	// Leader leads now, and Previous is whom this follower was last told. The zero
	// Owner means nobody, or nobody that is known.
	Leader, Previous lease.Owner
	// IsSelf: the leader is the node that was asked. For a Group's election it is
	// true only while that node's own term of leadership is alive.
	IsSelf bool
	// Skipped is how many changes before this one the follower was not told,
	// because it was behind. Only if there were some can Leader equal Previous: it
	// was another's, or nobody's, meanwhile.
	Skipped int
}

// Leadership is a source of leadership for one node.
type Leadership interface {
	// Follow calls f with the present leader, as soon as that is known, and then
	// with every change, each once, in order and one call at a time, until stop. A
	// follower that falls behind is told the newest only, and LeaderChanged.Skipped
	// how many it missed. The sources of this package are never held up by f, and
	// stop may be called from it; it does not wait for a call that has begun, and
	// none begins after it.
	Follow(f func(LeaderChanged)) (stop func())
}

// changed makes what a follower is told when it last knew of previous.
func changed(group string, self, previous, leader lease.Owner, skipped int) LeaderChanged {
	return LeaderChanged{Group: group, Leader: leader, Previous: previous, Skipped: skipped,
		IsSelf: leader.Incarnation != "" && leader.Incarnation == self.Incarnation}
}
