package membership

import (
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/lease"
)

// Member is one node of a group, in one life.
type Member struct {
	ID          string // the node's name
	Incarnation string // unique to this life of the node
	Address     string // where its actor system is reached; may be empty
	// Roles are sorted. They are shared and must not be changed.
	Roles    []string
	Capacity int
	// Labels are shared and must not be changed.
	Labels map[string]string
	// Leaving: it has announced that it will leave. It never takes that back.
	Leaving bool
	// Token is the fencing token of its membership: a node that lost it and joined
	// again has a higher one.
	Token lease.Token
	// IsSelf: it is the node that was asked, and its own term is alive.
	IsSelf bool
}

// Owner returns the member as lease records have it.
func (m Member) Owner() lease.Owner {
	return lease.Owner{ID: m.ID, Incarnation: m.Incarnation, Address: m.Address}
}

// HasRole reports whether the member has the role.
func (m Member) HasRole(role string) bool { return slices.Contains(m.Roles, role) }

// Snapshot is what a node knows of its group at one moment. It never changes.
type Snapshot struct {
	Group string
	// Version grows with every change. It counts what this node saw: versions of
	// two nodes do not compare.
	Version uint64
	// Members are sorted by ID; of two lives of one ID only the later is listed.
	// The slice is shared and must not be changed.
	Members []Member
}

// Self returns the member that is this node; ok is false while it is none.
func (s Snapshot) Self() (m Member, ok bool) {
	for _, m := range s.Members {
		if m.IsSelf {
			return m, true
		}
	}
	return Member{}, false
}

// Find returns the member of that ID.
func (s Snapshot) Find(id string) (m Member, ok bool) {
	i, ok := slices.BinarySearchFunc(s.Members, id, func(m Member, id string) int { return strings.Compare(m.ID, id) })
	if !ok {
		return Member{}, false
	}
	return s.Members[i], true
}

// MembersChanged is what a follower of a Group gets, and WithEvents.
type MembersChanged struct {
	// Now is the newest snapshot.
	Now Snapshot
	// Joined, Left and Leaving are the differences from what this follower was
	// last told: memberships that began and ended, and those whose leaving was
	// announced. One that joined and is leaving is in both. A node that restarted,
	// or lost its membership and joined again, is in Left with its old token and
	// in Joined with its new one.
	Joined, Left, Leaving []Member
	// Skipped is how many snapshots before this one the follower was not told,
	// because it was behind. Only if there were some can the differences be empty.
	Skipped int
}

// Lost goes to WithEvents when this node lost its membership against its will. It joins again by
// itself, unless the Keeper was closed.
type Lost struct {
	Group string
	Loss  lease.Loss
}

// membershipKey tells one membership from another.
type membershipKey struct {
	incarnation string
	token       lease.Token
}

func (m Member) key() membershipKey { return membershipKey{m.Incarnation, m.Token} }

// diff returns what leads from one list of members to another.
func diff(before, after []Member) (joined, left, leaving []Member) {
	old := make(map[membershipKey]Member, len(before))
	for _, m := range before {
		old[m.key()] = m
	}
	for _, m := range after {
		was, ok := old[m.key()]
		delete(old, m.key())
		if !ok {
			joined = append(joined, m)
		}
		if m.Leaving && !was.Leaving {
			leaving = append(leaving, m)
		}
	}
	for _, m := range before {
		if _, ok := old[m.key()]; ok {
			left = append(left, m)
		}
	}
	return joined, left, leaving
}

func same(a, b Member) bool { return a.key() == b.key() && a.Leaving == b.Leaving }
