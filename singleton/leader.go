package singleton

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
)

// This file follows a source of leadership, calmly.

// follow begins to follow it, aside: it is the user's, and may hang. If it fails it is
// tried again after a pause that grows. What it returns is called, aside, when the manager ends.
func (c *controller) follow() {
	c.following = true
	boundary.Aside(func() (func(), error) {
		return c.set.leadership.Follow(func(ch membership.LeaderChanged) { c.post(func() { c.onLeader(ch) }) }), nil
	}, func(stop func(), err error) {
		c.post(func() { c.onFollowing(err) })
		if err == nil {
			context.AfterFunc(c.life, func() { _ = boundary.Contained(stop) })
		}
	})
}

func (c *controller) onFollowing(err error) {
	c.following = false
	if err != nil {
		c.log.Error("the source of leadership failed: it is tried again", zap.Error(err))
		c.later(&c.again, actors.Backoff(c.followers, c.set.backoffMin, c.set.backoffMax), c.follow)
		c.followers++
	}
}

// onLeader takes up a change of the leader. Becoming leader counts at once: at worst the
// name is not free. That another node leads counts for a host only if it stays so
// (WithSettle). That no node leads counts neither for a host nor for a node that is about
// to be one: there is no successor.
func (c *controller) onLeader(ch membership.LeaderChanged) {
	c.leader, c.leads = ch.Leader, ch.IsSelf
	switch {
	case ch.IsSelf:
		c.settling.Stop()
		c.fire(wanted)
		c.introduce(false) // a host that can't hear of it otherwise hears it from us
	case ch.Leader == lease.Owner{} && (c.hosting() || c.phase == Offering || c.phase == Offered || c.phase == Adopting):
		c.settling.Stop()
	case !c.hosting():
		c.settling.Stop()
		c.fire(unwanted)
	default:
		c.settleIn(func() { c.fire(unwanted) })
	}
}

// onRival takes up that another node says it leads. It counts if this node's source of
// leadership does not say that this node does: it may have left the group.
func (c *controller) onRival(l lease.Owner) {
	if c.set.leadership == nil || c.leads || !c.hosting() {
		return
	}
	c.leader = l
	c.settleIn(func() { c.fire(unwanted) })
}

// hosting reports whether this node holds the lease and is to go on doing so.
func (c *controller) hosting() bool {
	switch c.phase {
	case Starting, Active, Inviting, Backoff:
		return true
	}
	return false
}

// settleIn does f if nothing calls it off within the settling time.
func (c *controller) settleIn(f func()) { c.settleAfter(c.set.settle, f) }

func (c *controller) settleAfter(d time.Duration, f func()) {
	if !c.settling.Pending() {
		c.later(&c.settling, d, f)
	}
}

// askAgain is the pause after which a host that found no successor asks again.
const askAgain = time.Second

// rankDelay is how much longer each rank, and mostRanks of them, waits for a free name
// (WithPreferred).
const (
	rankDelay = 100 * time.Millisecond
	mostRanks = 5
)
