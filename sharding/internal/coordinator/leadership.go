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
	group string
	self  string // incarnation
	table *directory.Table

	mu        sync.Mutex
	leader    lease.Owner // of the group
	told      lease.Owner
	followers map[*int]func(membership.LeaderChanged)
}

// NewLeadership makes one of a node of a group, by its incarnation.
func NewLeadership(group, self string, table *directory.Table) *Leadership {
	return &Leadership{group: group, self: self, table: table, followers: map[*int]func(membership.LeaderChanged){}}
}

// Follow implements membership.Leadership. f is called under a lock, and must not
// block.
func (l *Leadership) Follow(f func(membership.LeaderChanged)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := new(int)
	l.followers[key] = f
	if l.told.Incarnation != "" {
		f(l.change(lease.Owner{}, l.told))
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.followers, key)
	}
}

func (l *Leadership) change(previous, leader lease.Owner) membership.LeaderChanged {
	return membership.LeaderChanged{Group: l.group, Leader: leader, Previous: previous,
		IsSelf: leader.Incarnation == l.self && leader.Incarnation != ""}
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
	if next == l.told {
		return
	}
	previous := l.told
	l.told = next
	for _, f := range l.followers {
		f(l.change(previous, next))
	}
}
