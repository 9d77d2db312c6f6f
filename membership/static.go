package membership

import (
	"sync"

	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/lease"
)

// Static is a Leadership that its owner sets: for tests, and for programs that
// learn of the leader by other means. The zero Static is that of no node. Safe for
// concurrent use.
type Static struct {
	self lease.Owner

	mu     sync.Mutex
	leader lease.Owner
	feed   feed.Latest[lease.Owner]
}

// NewStatic returns a source for the node self, which has no leader yet.
func NewStatic(self lease.Owner) *Static {
	s := &Static{self: self}
	s.feed.Set(lease.Owner{})
	return s
}

// Set makes leader the leader. Setting the present one changes nothing. It never
// waits for a follower.
func (s *Static) Set(leader lease.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leader != s.leader {
		s.leader = leader
		s.feed.Set(leader)
	}
}

// Follow implements Leadership. A panic of f is logged by slog.Default().
func (s *Static) Follow(f func(LeaderChanged)) (stop func()) {
	return s.feed.Follow(func(previous, leader lease.Owner, skipped int) {
		f(changed("", s.self, previous, leader, skipped))
	})
}
