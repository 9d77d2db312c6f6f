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

	eligible    context.Context // while this node may lead; nil while it may not
	endEligible context.CancelFunc
	eligibility chan struct{} // closed and replaced when eligible changes
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
	m.hold(ctx, m.member, func(ctx context.Context, t lease.Term) {
		m.began(t)
		<-ctx.Done()
		m.ended(t)
	})
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
	m.setEligibleLocked(listed && !self.Leaving)
}

// setEligibleLocked lets this node stand for leadership, or not.
func (m *membership) setEligibleLocked(may bool) {
	switch {
	case may && m.eligible == nil:
		m.eligible, m.endEligible = context.WithCancel(m.life)
		m.wakeLocked()
	case !may && m.eligible != nil:
		m.endEligible()
		m.eligible, m.endEligible = nil, nil
	}
	if m.outLocked() {
		m.wakeLocked()
	}
}

// outLocked: this node will never again stand for leadership.
func (m *membership) outLocked() bool {
	return m.roster.leaving || m.ending && m.term == nil || m.life.Err() != nil
}

func (m *membership) wakeLocked() {
	close(m.eligibility)
	m.eligibility = make(chan struct{})
}

// awaitEligible waits until this node may lead: ctx is done when it may no more.
// ok is false when it never will.
func (m *membership) awaitEligible() (ctx context.Context, ok bool) {
	for {
		m.mu.Lock()
		ctx, changed, out := m.eligible, m.eligibility, m.outLocked()
		m.mu.Unlock()
		switch {
		case out:
			return nil, false
		case ctx != nil:
			return ctx, true
		}
		select {
		case <-changed:
		case <-m.life.Done():
			return nil, false
		}
	}
}

// rivalLocked returns the later life of this ID that is listed in place of this one.
func (m *membership) rivalLocked() (rival Member, ok bool) {
	if _, listed := m.now.Self(); listed || m.term == nil {
		return Member{}, false
	}
	return m.now.Find(m.roster.own.ID)
}
