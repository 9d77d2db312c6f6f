package membership

import (
	"sync"

	"github.com/holdfast-go/holdfast/lease"
)

// LeaderChanged says who leads from now on. The zero Leader means nobody.
type LeaderChanged struct {
	Leader, Previous lease.Owner
	// IsSelf: the leader is the node that was asked.
	IsSelf bool
}

// Leadership is a source of leadership for one node.
type Leadership interface {
	// Follow calls f with the present leader and then with every change, in
	// order and one call at a time, until stop. A follower that falls behind may
	// be told only the newest. f must not block and must not call stop.
	Follow(f func(LeaderChanged)) (stop func())
}

// Static is a Leadership that its owner sets: for tests, and for programs that
// are told who leads by other means. Safe for concurrent use.
type Static struct {
	self lease.Owner

	mu        sync.Mutex
	leader    lease.Owner
	last      LeaderChanged
	followers map[*follower]struct{}
}

type follower struct{ f func(LeaderChanged) }

// NewStatic returns a source for the node self, where nobody leads yet.
func NewStatic(self lease.Owner) *Static {
	return &Static{self: self, followers: map[*follower]struct{}{}}
}

// Set makes leader the leader. Setting the present one changes nothing.
func (s *Static) Set(leader lease.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leader == s.leader {
		return
	}
	s.last = LeaderChanged{Leader: leader, Previous: s.leader,
		IsSelf: leader.Incarnation != "" && leader.Incarnation == s.self.Incarnation}
	s.leader = leader
	for f := range s.followers {
		f.f(s.last)
	}
}

// Follow implements Leadership.
func (s *Static) Follow(f func(LeaderChanged)) (stop func()) {
	e := &follower{f}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers[e] = struct{}{}
	f(s.last)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.followers, e)
	}
}
