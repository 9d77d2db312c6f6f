package membership

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Group is one node's part in a group of nodes. Join makes it; end it with
// Leave. Safe for concurrent use.
type Group struct {
	names      names
	noticeName string
	keeper     *lease.Keeper
	set        settings
	log        *zap.Logger
	feed       feed.Latest[Snapshot]

	life       context.Context // ends with the Group
	end        context.CancelFunc
	ready      chan struct{} // closed when it is a member and knows the others
	member     *lease.Handle
	stopMember context.CancelFunc
	metrics    *instruments

	memberDone chan struct{}  // closed when the member lease is held no more, for good
	holders    sync.WaitGroup // of the group's leases; none begins once life has ended

	mu          sync.Mutex
	after       []func() // log lines, to be written by unlock
	roster      roster
	term        lease.Term // the own membership; nil while there is none
	now         Snapshot
	eligible    context.Context // while this node may lead; nil while it may not
	endEligible context.CancelFunc
	eligibility chan struct{} // closed and replaced when eligible changes
	failure     error         // of the last attempt to acquire a lease
	// superseded is the later incarnation of the ID that is listed in place of this one.
	superseded string
	unobject   context.CancelFunc
	// ending: a membership that ends is not restarted. Before roster.leaving.
	ending     bool
	leaving    *lease.Handle
	stopNotice context.CancelFunc
	noticeDone chan struct{}
	election   *Election

	electing sync.Mutex // held while the election is made
}

// errUnmade is what a Group answers that Join did not make, as nil where a node has not joined yet.
var errUnmade = fmt.Errorf("group: %w: not joined, must come from membership.Join", lease.ErrInvalid)

// check is the beginning of the calls that a user may make of a zero Group, or with no
// context.
func (g *Group) check(ctx context.Context) error {
	if g == nil || g.keeper == nil {
		return errUnmade
	}
	if err := input.Context(ctx, lease.ErrInvalid); err != nil {
		return fmt.Errorf("group %.64q: %w", g.names.group, err)
	}
	return nil
}

// Name returns the group's name.
func (g *Group) Name() string { return g.names.group }

// Keeper returns the Keeper that joined.
func (g *Group) Keeper() *lease.Keeper { return g.keeper }

// Members returns what is known of the group now. This node is among the members
// only while its own term is alive, at the moment of the call; of the others the
// records tell, as far as the store was heard.
func (g *Group) Members() Snapshot {
	g.notice()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

// Self returns this node as a member; ok is false while it is none: it lost its
// membership, has left, or a later incarnation of its ID has joined.
func (g *Group) Self() (m Member, ok bool) { return g.Members().Self() }

// HasRole reports whether this node joined with the role (WithRoles), also while it is no member.
func (g *Group) HasRole(role string) bool { return slices.Contains(g.set.roles, role) }

// Term returns the term of this node's membership; ok is false while there is
// none that lives. Its context is done when the membership ends.
func (g *Group) Term() (t lease.Term, ok bool) {
	g.notice()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.term, g.term != nil
}

// AsParent hangs a lease of this node's Keeper on its membership (lease.WithParent): it is
// trusted no longer than that, and Leave waits for it to be released. Leadership hangs so.
func (g *Group) AsParent() lease.Option { return lease.WithParent(g.member) }

// Follow calls f with the present members, all of them in Joined, and then with
// every change, in order and one call at a time, until stop. A slow follower
// holds up nothing: it gets the newest snapshot, with the differences from what
// it was last told, and in Skipped how many it missed. stop may be called from f;
// it does not wait for a call that has begun, and none begins after it. A panic of
// f is logged. No call follows Leave.
func (g *Group) Follow(f func(MembersChanged)) (stop func()) {
	return g.feed.Follow(func(previous, now Snapshot, skipped int) {
		c := MembersChanged{Now: now, Skipped: skipped}
		c.Joined, c.Left, c.Leaving = diff(previous.Members, now.Members)
		f(c)
	})
}

// OnLost calls f when this node lost its membership against its will, once for
// each loss, as lease.Lease.OnLost does. It joins again by itself.
func (g *Group) OnLost(f func(lease.Loss)) (stop func() bool) {
	if g.member == nil { // Join did not make it: there is nothing to lose
		return func() bool { return false }
	}
	return g.member.OnLost(f)
}

// report makes the log, the metrics and the events followers of the group.
func (g *Group) report() {
	g.Follow(func(c MembersChanged) {
		g.metrics.members.Set(int64(len(c.Now.Members)))
		for _, x := range []struct {
			what    string
			members []Member
		}{{"member left", c.Left}, {"member joined", c.Joined}, {"member is leaving", c.Leaving}} {
			for _, m := range x.members {
				g.log.Info(x.what, zap.String("member", m.ID), zap.String("incarnation", m.Incarnation),
					zap.Uint64("token", uint64(m.Token)), zap.Bool("self", m.IsSelf))
			}
		}
	})
	if publish := g.set.publish; publish != nil {
		g.Follow(func(c MembersChanged) { publish(c) })
	}
}

// unlock frees mu, and then writes what was noted to be logged: the logger is the user's.
func (g *Group) unlock() {
	after := g.after
	g.after = nil
	g.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// onLost is the member lease's.
func (g *Group) onLost(l lease.Loss) {
	g.metrics.losses.Add(1)
	g.log.Warn("membership lost", zap.Uint64("token", uint64(l.Token)), zap.Error(l.Reason))
	if g.set.publish != nil {
		g.set.publish(Lost{Group: g.names.group, Loss: l})
	}
}

// hear takes up an event of a record.
func (g *Group) hear(ev store.Event, take func(store.Event) error) {
	g.mu.Lock()
	defer g.unlock()
	if err := take(ev); err != nil {
		g.after = append(g.after, func() { g.log.Warn("a record of the group can't be read, left alone", zap.Error(err)) })
	}
	g.settleLocked()
}

// holdMember holds the member lease, until stopMember.
func (g *Group) holdMember(ctx context.Context) {
	defer close(g.memberDone)
	g.hold(ctx, g.member, func(ctx context.Context, t lease.Term) {
		g.began(t)
		<-ctx.Done()
		g.ended(t)
	})
	g.mu.Lock()
	defer g.unlock()
	g.ending = true // the Keeper may have been closed
	g.settleLocked()
}

// began: this node is a member.
func (g *Group) began(t lease.Term) {
	g.mu.Lock()
	defer g.unlock()
	if g.ending {
		g.stopMember()
		return
	}
	g.term, g.roster.own.Token = t, t.Token()
	g.settleLocked()
}

// ended: it is no more.
func (g *Group) ended(t lease.Term) {
	g.mu.Lock()
	defer g.unlock()
	g.endedLocked(t)
}

func (g *Group) endedLocked(t lease.Term) {
	if g.term != t {
		return
	}
	g.term, g.roster.own.Token = nil, 0
	if g.ending {
		g.stopMember()
	}
	g.settleLocked()
}

// notice finds out what the clock knows before anybody was told.
func (g *Group) notice() {
	g.mu.Lock()
	defer g.unlock()
	if g.term != nil && !g.term.CheckAlive() {
		g.endedLocked(g.term)
	}
}

// note remembers why a lease could not be acquired.
func (g *Group) note(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failure = err
}

// settleLocked draws the conclusions from what has changed.
func (g *Group) settleLocked() {
	joining := g.now.Version == 0
	if joining && (g.term == nil || !g.roster.complete()) {
		return
	}
	members, bad := g.roster.list(), len(g.roster.unreadable)
	if joining || bad != g.now.Unreadable || !slices.EqualFunc(members, g.now.Members, same) {
		g.now = Snapshot{Group: g.names.group, Version: g.now.Version + 1, Members: members, Unreadable: bad}
		g.feed.Set(g.now)
	}
	if joining {
		close(g.ready)
	}
	self, listed := g.now.Self()
	g.contestLocked()
	g.setEligibleLocked(listed && !self.Leaving)
}

// setEligibleLocked lets this node stand for leadership, or not.
func (g *Group) setEligibleLocked(may bool) {
	switch {
	case may && g.eligible == nil:
		g.eligible, g.endEligible = context.WithCancel(g.life)
		g.wakeLocked()
	case !may && g.eligible != nil:
		g.endEligible()
		g.eligible, g.endEligible = nil, nil
	}
	if g.outLocked() {
		g.wakeLocked()
	}
}

func same(a, b Member) bool { return a.key() == b.key() && a.Leaving == b.Leaving }

// outLocked: this node will never again stand for leadership.
func (g *Group) outLocked() bool {
	return g.roster.leaving || g.ending && g.term == nil || g.life.Err() != nil
}

func (g *Group) wakeLocked() {
	close(g.eligibility)
	g.eligibility = make(chan struct{})
}

// awaitEligible waits until this node may lead: ctx is done when it may no more.
// ok is false when it never will.
func (g *Group) awaitEligible() (ctx context.Context, ok bool) {
	for {
		g.mu.Lock()
		ctx, changed, out := g.eligible, g.eligibility, g.outLocked()
		g.mu.Unlock()
		switch {
		case out:
			return nil, false
		case ctx != nil:
			return ctx, true
		}
		select {
		case <-changed:
		case <-g.life.Done():
			return nil, false
		}
	}
}
