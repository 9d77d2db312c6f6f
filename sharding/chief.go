package sharding

import (
	"sync"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
)

// chief is the source of leadership that coordinators follow: the group's leader,
// as long as it hosts the type; else who has hosted it for the longest time, so
// that a leader which knows nothing of the type leaves it without a coordinator
// for no moment.
type chief struct {
	r *Region

	mu        sync.Mutex
	leader    lease.Owner // of the group
	told      lease.Owner
	followers map[*int]func(membership.LeaderChanged)
}

// Follow implements membership.Leadership. f is called under a lock, and must not
// block.
func (c *chief) Follow(f func(membership.LeaderChanged)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := new(int)
	c.followers[key] = f
	if c.told.Incarnation != "" {
		f(c.change(lease.Owner{}, c.told))
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.followers, key)
	}
}

func (c *chief) change(previous, leader lease.Owner) membership.LeaderChanged {
	return membership.LeaderChanged{Group: c.r.group.Name(), Leader: leader, Previous: previous,
		IsSelf: leader.Incarnation == c.r.self.Incarnation && leader.Incarnation != ""}
}

// led takes up who leads the group.
func (c *chief) led(ch membership.LeaderChanged) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = ch.Leader
	c.settle()
}

// noticed takes up a change of who takes part.
func (c *chief) noticed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
}

func (c *chief) settle() {
	var next lease.Owner
	for i, g := range c.r.table.Participants(true) {
		if i == 0 || g.Owner.Incarnation == c.leader.Incarnation {
			next = g.Owner
		}
	}
	if next == c.told {
		return
	}
	previous := c.told
	c.told = next
	for _, f := range c.followers {
		f(c.change(previous, next))
	}
}
