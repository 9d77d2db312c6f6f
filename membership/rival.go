package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// This file is about two lives of one ID at a time. The later one is the member. One
// that crashed is replaced so. One that lives objects, by the lease
// "objection/<group>/<id>/<incarnation of the later>", as long as it is superseded; the
// later one's Join waits for that for a moment, and fails.

// ErrIDInUse: another node of the group that lives has the same ID (lease.Config.ID).
var ErrIDInUse = errors.New("the ID is in use by another node of the group")

// objectWithin is how long a Join waits for the word of an earlier life of its ID
// whose record still stands.
const objectWithin = time.Second

// rivalLocked returns the later life of this ID that is listed in place of this one.
func (g *Group) rivalLocked() (m Member, ok bool) {
	if _, listed := g.now.Self(); listed || g.term == nil {
		return Member{}, false
	}
	m, ok = g.now.Find(g.roster.own.ID)
	return m, ok
}

// contestLocked objects to a rival, or stops to.
func (g *Group) contestLocked() {
	rival, is := g.rivalLocked()
	if g.superseded == rival.Incarnation {
		return
	}
	g.superseded = rival.Incarnation
	if g.unobject != nil {
		g.unobject()
		g.unobject = nil
	}
	if !is {
		g.after = append(g.after, func() {
			g.log.Info("listed again, or no member any more: no later incarnation of this ID is in its place")
		})
		return
	}
	g.after = append(g.after, func() {
		g.log.Error("not listed any more: a later incarnation of this ID has joined", zap.Error(g.inUse(rival)))
	})
	if g.roster.leaving {
		return // it makes room
	}
	if g.life.Err() != nil {
		return // it has left
	}
	var ctx context.Context
	ctx, g.unobject = context.WithCancel(g.life)
	g.holders.Go(func() { g.object(ctx, rival) })
}

func (g *Group) inUse(by Member) error {
	return fmt.Errorf("%q is %s at %q, too: %w", by.ID, by.Incarnation, by.Address, ErrIDInUse)
}

// object holds the lease that says that this life goes on.
func (g *Group) object(ctx context.Context, rival Member) {
	name, err := g.names.objection(rival.Owner())
	if err != nil {
		return // its own member lease has a longer one
	}
	h, err := g.keeper.Lease(name, g.leaseOptions(nil)...)
	if err != nil {
		g.log.Warn("no objection can be made", zap.Error(err))
		return
	}
	g.hold(ctx, h, func(ctx context.Context, _ lease.Term) { <-ctx.Done() })
	_ = h.Close(context.Background()) // bounded by the lease's own bounds
}

// predecessorLocked returns an earlier life of this ID whose record stands, and that
// does not leave: it may live. One that was at this node's address does not.
func (g *Group) predecessorLocked() (m Member, ok bool) {
	for _, m := range g.roster.members {
		there := m.Address == "" || m.Address != g.roster.own.Address
		if m.ID == g.roster.own.ID && m.Token < g.roster.own.Token && !m.Leaving && there {
			return m, true
		}
	}
	return Member{}, false
}

// unopposed returns nil when no earlier life of the ID objects to this one.
func (g *Group) unopposed(ctx context.Context) error {
	earlier := func() (Member, bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.predecessorLocked()
	}
	m, is := earlier()
	if !is {
		return nil
	}
	name, err := g.names.objection(g.roster.self)
	if err != nil {
		return err
	}
	objects := make(chan struct{}, 1)
	stop, err := g.keeper.Watch(name, func(ev store.Event) {
		if ev.Kind == store.EventPut && ev.Record.Name == name {
			select {
			case objects <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	const look = 20 * time.Millisecond
	for began := g.keeper.Clock().Now().Mono; g.keeper.Clock().Now().Mono-began < objectWithin; {
		wait, cancel := context.WithCancel(ctx)
		t := g.keeper.Clock().AfterFunc(look, cancel)
		select {
		case <-objects:
			t.Stop()
			cancel()
			return g.inUse(m)
		case <-wait.Done():
		}
		t.Stop()
		cancel()
		if _, is := earlier(); !is || ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// Health is a check as health.Handler takes it. It fails while this node is no
// member: lease.ErrExpired, or why it could not be one; lease.ErrClosed after Leave;
// and ErrIDInUse while a later life of its ID is listed in its place, with the other's
// address. It asks nothing of the store, and returns at once.
func (g *Group) Health(ctx context.Context) error {
	if err := g.check(ctx); err != nil {
		return err
	}
	g.notice()
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	rival, is := g.rivalLocked()
	switch {
	case is:
		err = g.inUse(rival)
	case g.life.Err() != nil:
		err = lease.ErrClosed
	case g.term == nil && g.failure != nil:
		err = g.failure
	case g.term == nil:
		err = lease.ErrExpired
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
		return g.inUse(rival)
	}
	return nil
}
