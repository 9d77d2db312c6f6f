package membership

import (
	"context"
	"slices"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// membership is this node's own, with what it knows of the others.
type membership struct {
	base
	feed   feed.Latest[Snapshot]
	ready  chan struct{} // closed when it is a member and knows the others
	member *lease.Handle
	stop   context.CancelFunc // of holding that
	done   chan struct{}      // closed when it is held no more, for good

	roster  roster
	term    lease.Term // nil while there is none
	now     Snapshot
	ending  bool // it is not restarted when it ends. Before roster.leaving.
	rivalry rivalry

	stand    func(before *held) *held // for leadership, after before has ended; nil: Leadership was not called
	stands   bool
	standing *held // the leader's lease; nil before it stood
}

// onLost is the member lease's.
func (m *membership) onLost(l lease.Loss) {
	m.metrics.losses.Add(1)
	m.log.Warn("membership lost", zap.Uint64("token", uint64(l.Token)), zap.Error(l.Reason), boundary.Do("nothing: it joins again by itself"))
	if m.set.publish != nil {
		m.set.publish(Lost{Group: m.names.group, Loss: l})
	}
}

// hear takes up an event of a record.
func (m *membership) hear(ev store.Event, take func(store.Event) error) {
	m.mu.Lock()
	defer m.unlock()
	if err := take(ev); err != nil {
		m.after = append(m.after, func() { m.log.Warn("a record of the group can't be read, left alone", zap.Error(err)) })
	}
	m.settleLocked()
}

// holdMember holds the member lease, until stop.
func (m *membership) holdMember(ctx context.Context) {
	defer close(m.done)
	m.hold(ctx, m.member, turns{m.began, m.ended})
	m.mu.Lock()
	defer m.unlock()
	m.ending = true // the Keeper may have been closed
	m.settleLocked()
}

// began: this node is a member.
func (m *membership) began(t lease.Term) {
	m.mu.Lock()
	defer m.unlock()
	if m.ending {
		m.stop()
		return
	}
	m.term, m.roster.own.Token = t, t.Token()
	m.settleLocked()
}

// ended: it is no more.
func (m *membership) ended(t lease.Term) {
	m.mu.Lock()
	defer m.unlock()
	m.endedLocked(t)
}

func (m *membership) endedLocked(t lease.Term) {
	if m.term != t {
		return
	}
	m.term, m.roster.own.Token = nil, 0
	if m.ending {
		m.stop()
	}
	m.settleLocked()
}

// notice finds out what the clock knows before anybody was told.
func (m *membership) notice() {
	m.mu.Lock()
	defer m.unlock()
	if m.term != nil && !m.term.CheckAlive() {
		m.endedLocked(m.term)
	}
}

// settleLocked draws the conclusions from what has changed.
func (m *membership) settleLocked() {
	joining := m.now.Version == 0
	if joining && (m.term == nil || !m.roster.complete()) {
		return
	}
	members := m.roster.list()
	if joining || !slices.EqualFunc(members, m.now.Members, same) {
		m.now = Snapshot{Group: m.names.group, Version: m.now.Version + 1, Members: members}
		m.feed.Set(m.now)
	}
	if joining {
		close(m.ready)
	}
	self, listed := m.now.Self()
	rival, _ := m.rivalLocked()
	m.rivalry.contestLocked(&m.base, rival, m.roster.leaving)
	switch may := listed && !self.Leaving; {
	case may == m.stands || m.stand == nil:
	case !may:
		m.stands = false
		m.standing.stop()
	case m.life.Err() == nil:
		m.stands = true
		m.standing = m.stand(m.standing)
	}
}

// rivalLocked returns the later life of this ID that is listed in place of this one.
func (m *membership) rivalLocked() (rival Member, ok bool) {
	if _, listed := m.now.Self(); listed || m.term == nil {
		return Member{}, false
	}
	return m.now.Find(m.roster.own.ID)
}
