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

// leadership is what the source of leadership says.
type leadership struct {
	*core
	led func() // this node became the leader

	following bool         // Follow has not returned
	failed    int          // calls of Follow that failed
	again     actors.Alarm // until Follow is called again

	leader   lease.Owner
	leads    bool         // this node is the leader
	settling actors.Alarm // until a change counts that has lasted
}

// follow begins to follow it, aside: it is the user's, and may hang. If it fails it is
// tried again after a pause that grows. What it returns is called, aside, when the manager ends.
func (l *leadership) follow() {
	l.following = true
	boundary.Aside(func() (func(), error) {
		return l.set.leadership.Follow(func(ch membership.LeaderChanged) { l.post(func() { l.onLeader(ch) }) }), nil
	}, func(stop func(), err error) {
		l.post(func() { l.onFollowing(err) })
		if err == nil {
			context.AfterFunc(l.life, func() { _ = boundary.Contained(stop) })
		}
	})
}

func (l *leadership) onFollowing(err error) {
	l.following = false
	if err != nil {
		l.log.Error("the source of leadership failed: it is tried again", zap.Error(err))
		l.later(&l.again, actors.Backoff(l.failed, l.set.backoffMin, l.set.backoffMax), l.follow)
		l.failed++
	}
}

// onLeader takes up a change of the leader. Becoming leader counts at once: at worst the
// name is not free. That another node leads counts for a host only if it stays so
// (WithSettle). That no node leads counts neither for a host nor for a node that is about
// to be one: there is no successor.
func (l *leadership) onLeader(ch membership.LeaderChanged) {
	l.leader, l.leads = ch.Leader, ch.IsSelf
	l.heedDrain(ch.IsSelf)
	switch {
	case ch.IsSelf:
		l.settling.Stop()
		l.fire(wanted)
		l.led()
	case ch.Leader == lease.Owner{} && (l.hosting() || l.phase == Offering || l.phase == Offered || l.phase == Adopting):
		l.settling.Stop()
	case !l.hosting():
		l.settling.Stop()
		l.fire(unwanted)
	default:
		l.settleIn(func() { l.fire(unwanted) })
	}
}

// heedDrain has the machine know whether the node is drained: what follows a source of leadership
// goes where that points all the same.
func (l *leadership) heedDrain(leads bool) {
	switch {
	case l.owned || !registryOf(l.system).drained.Load():
	case leads:
		l.fire(undrain)
	default:
		l.fire(drain)
	}
}

// onRival takes up that another node says it leads. It counts if this node's source of
// leadership does not say that this node does: it may have left the group.
func (l *leadership) onRival(leader lease.Owner) {
	if l.set.leadership == nil || l.leads || !l.hosting() {
		return
	}
	l.leader = leader
	l.settleIn(func() { l.fire(unwanted) })
}

// hosting reports whether this node holds the lease and is to go on doing so.
func (l *leadership) hosting() bool { return l.phase >= Starting && l.phase <= Backoff }

// settleIn does f if nothing calls it off within the settling time.
func (l *leadership) settleIn(f func()) { l.settleAfter(l.set.settle, f) }

func (l *leadership) settleAfter(d time.Duration, f func()) {
	if !l.settling.Pending() {
		l.later(&l.settling, d, f)
	}
}

// askAgain is the pause after which a host that found no successor asks again.
const askAgain = time.Second
