package membership

import (
	"sync"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Election is a Group's source of leadership: the leader is the node that holds the lease
// "leader/<group>" (escaped). The leader keeps it until it leaves, dies, or loses it or
// its membership. Group.Leadership makes it; it ends with the Group. Safe for
// concurrent use.
type Election struct {
	of    *membership
	lease *lease.Handle
	feed  feed.Latest[lease.Owner]

	mu     sync.Mutex
	ballot ballot
	term   lease.Term // of leadership; nil while this node does not lead
	synced bool       // the record is known
	told   bool       // the feed has a leader
	leader lease.Owner
}

var _ Leadership = (*Election)(nil)

// newElection returns one that neither follows nor stands yet. Its lease hangs on the membership.
func newElection(m *membership) (*Election, error) {
	e := &Election{of: m, ballot: ballot{name: m.names.leader, self: m.keeper.Owner()}}
	e.feed.Log = m.log
	e.feed.Fresh = e.notice
	var err error
	e.lease, err = m.keeper.Lease(m.names.leader, append(m.leaseOptions(nil), lease.WithParent(m.member))...)
	return e, err
}

// Follow implements Leadership. A panic of f is logged.
func (e *Election) Follow(f func(LeaderChanged)) (stop func()) {
	return e.feed.Follow(func(previous, leader lease.Owner, skipped int) {
		f(changed(e.of.names.group, e.ballot.self, previous, leader, skipped))
	})
}

// Leader returns the present leader, zero if there is none or it is not known, and whether
// it is this node: true only while its own term is alive, at the moment of the call.
func (e *Election) Leader() (leader lease.Owner, isSelf bool) {
	e.notice()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leader, e.term != nil && e.leader == e.ballot.self
}

// Term returns this node's term of leadership; ok is false while it does not lead.
// Its token fences what a leader writes.
func (e *Election) Term() (t lease.Term, ok bool) {
	e.notice()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term, e.term != nil
}

// won: this node leads.
func (e *Election) won(t lease.Term) { e.update(func() { e.term = t; e.ballot.won(t.Token()) }) }

// ended: this node leads no more. Its lease may not be released before.
func (e *Election) ended(t lease.Term) {
	e.update(func() {
		if e.term == t {
			e.term = nil
			e.ballot.ended(t.Token())
		}
	})
}

// notice finds out what the clock knows before anybody was told.
func (e *Election) notice() {
	e.mu.Lock()
	t := e.term
	e.mu.Unlock()
	if t != nil && !t.CheckAlive() {
		e.ended(t)
	}
}

// hear takes up an event of the leader's record.
func (e *Election) hear(ev store.Event) {
	e.update(func() {
		if ev.Kind == store.EventSynced {
			e.synced = true
			return
		}
		e.ballot.event(ev)
	})
}

// update changes what is known, and tells the followers of the leader if that changed.
func (e *Election) update(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	leader := e.ballot.leader()
	if !e.synced && e.term == nil || e.told && leader == e.leader {
		return
	}
	e.told, e.leader = true, leader
	e.feed.Set(leader)
}

// report makes the log, the metrics and the events followers of the election.
func (e *Election) report() {
	changes := func(f func(LeaderChanged)) {
		e.Follow(func(c LeaderChanged) {
			if c.Leader != c.Previous || c.Skipped > 0 { // not that there is no leader yet
				f(c)
			}
		})
	}
	e.Follow(func(c LeaderChanged) {
		n := c.Skipped
		if c.Leader != c.Previous {
			n++
		}
		e.of.metrics.leader(n, c.IsSelf)
	})
	changes(func(c LeaderChanged) {
		e.of.log.Info("leader changed", zap.String("leader", c.Leader.ID), zap.String("incarnation", c.Leader.Incarnation),
			zap.String("previous", c.Previous.ID), zap.Bool("self", c.IsSelf), zap.Int("skipped", c.Skipped))
	})
	if publish := e.of.set.publish; publish != nil {
		changes(func(c LeaderChanged) { publish(c) })
	}
}
