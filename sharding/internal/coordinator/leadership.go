package coordinator

import (
	"sync"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
)

// Leadership is the source of leadership that Coordinators follow: the group's leader,
// as long as it hosts the type; else who has hosted it for the longest time, so
// that a leader which knows nothing of the type leaves it without a Coordinator
// for no moment. Safe for concurrent use.
type Leadership struct {
	*membership.Static
	table *directory.Table

	mu     sync.Mutex
	leader lease.Owner // of the group
}

// NewLeadership makes one of the node self.
func NewLeadership(self lease.Owner, table *directory.Table) *Leadership {
	return &Leadership{Static: membership.NewStatic(self), table: table}
}

// Led takes up who leads the group.
func (l *Leadership) Led(ch membership.LeaderChanged) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leader = ch.Leader
	l.reconsiderLocked()
}

// Noticed takes up a change of who takes part.
func (l *Leadership) Noticed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reconsiderLocked()
}

func (l *Leadership) reconsiderLocked() {
	var next lease.Owner
	for i, g := range l.table.Participants(true) {
		if i == 0 || g.Owner.Incarnation == l.leader.Incarnation {
			next = g.Owner
		}
	}
	l.Set(next)
}
