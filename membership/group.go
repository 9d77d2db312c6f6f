package membership

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

// Group is one node's part in a group of nodes. Join makes it; end it with
// Leave. Safe for concurrent use.
type Group struct {
	membership
	noticeName string
	leaving    *lease.Handle // of the announcement; nil while it is not made
	announcing *held         // leaving
	election   *Election     // nil: Leadership was not called
	electing   sync.Mutex    // held while the election is made: that waits for the Keeper
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

// Labels returns those with which this node joined (WithLabels), also while it is no member. They are
// shared and must not be changed.
func (g *Group) Labels() map[string]string { return g.set.labels }

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

// Health is a check as health.Handler takes it. It fails while this node is no
// member: lease.ErrExpired, or why the store is not reached; lease.ErrClosed after Leave;
// and ErrIDInUse while a later life of its ID is listed in its place, with the other's
// address. It asks nothing of the store, and returns at once.
func (g *Group) Health(ctx context.Context) error {
	if err := g.check(ctx); err != nil {
		return err
	}
	g.notice()
	reached := g.keeper.Info().Failure
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	rival, is := g.rivalLocked()
	switch {
	case is:
		err = inUse(rival)
	case g.life.Err() != nil:
		err = lease.ErrClosed
	case g.term == nil:
		err = cmp.Or(reached, lease.ErrExpired)
	default:
		return nil
	}
	return fmt.Errorf("group %q: %q is no member: %w", g.names.group, g.roster.own.ID, err)
}

// Superseded is ErrIDInUse, with the other's address, while a later life of this
// node's ID is listed in its place though its own term lives; else nil.
func (g *Group) Superseded() error {
	g.notice()
	g.mu.Lock()
	defer g.mu.Unlock()
	if rival, is := g.rivalLocked(); is {
		return inUse(rival)
	}
	return nil
}

// Leadership returns the group's election. With the first call this node begins to
// follow the leader and to stand; later calls return the same.
//
// A member stands while its membership is alive and it has not announced that it
// leaves. Errors: lease.ErrNameInUse if the Keeper's lease "leader/<group>" is taken;
// lease.ErrClosed after Leave.
func (g *Group) Leadership() (*Election, error) {
	if g == nil || g.keeper == nil {
		return nil, errUnmade
	}
	fail := func(err error) (*Election, error) {
		return nil, fmt.Errorf("leadership of group %.64q: %w", g.names.group, err)
	}
	g.electing.Lock()
	defer g.electing.Unlock()
	g.mu.Lock()
	e := g.election
	g.mu.Unlock()
	if e != nil {
		return e, nil
	}
	e, err := newElection(&g.membership)
	if err != nil {
		return fail(err)
	}
	stop, err := g.keeper.Watch(g.names.leader, e.hear)
	if err == nil {
		context.AfterFunc(g.life, stop)
		if !g.adopt(e) {
			err = lease.ErrClosed
		}
	}
	if err != nil {
		_ = e.lease.Close(context.Background()) // nothing was acquired
		return fail(err)
	}
	return e, nil
}

// adopt makes e the group's election, for which this node then stands; false if the group has ended.
func (g *Group) adopt(e *Election) bool {
	g.mu.Lock()
	defer g.unlock()
	if g.life.Err() != nil {
		return false
	}
	g.election = e
	g.stand = func(before *held) *held { return g.holdAside(g.life, e.lease, before, turns{e.won, e.ended}) }
	e.report()
	g.settleLocked()
	return true
}
