package membership

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/lease"
)

// AnnounceLeaving tells the group that this node is going to leave, by the lease
// "leaving/<group>/<id>/<incarnation>". Then the node gives up leadership and does
// not stand for it again; it stays a member until Leave. There is no way back. It
// is bounded by ctx and by lease.Config.OperationTimeout.
//
// On an error (ErrUnknown, ErrClosed, the context's) the others may not know; the
// announcement is tried on in the background. If this node is no member at the
// moment it does not join again, and there is nothing to announce.
func (g *Group) AnnounceLeaving(ctx context.Context) error {
	if err := g.check(ctx); err != nil {
		return err
	}
	g.mu.Lock()
	g.ending = true
	var err error
	switch {
	case g.term == nil:
		g.stop()
	case g.leaving == nil && g.life.Err() == nil:
		err = g.holdNoticeLocked(g.term)
	}
	h := g.leaving
	g.mu.Unlock()

	if h != nil && err == nil {
		var won bool
		if won, err = h.Acquire(ctx); err == nil && !won {
			err = lease.ErrTakenOver
		}
	}
	g.mu.Lock()
	defer g.unlock()
	if !g.roster.leaving {
		g.roster.leaving = true
		g.after = append(g.after, func() { g.log.Info("leaving") })
	}
	g.settleLocked()
	if err != nil {
		return fmt.Errorf("group %.64q: announcing to leave: %w", g.names.group, err)
	}
	return nil
}

// holdNoticeLocked begins to hold the leaving lease.
func (g *Group) holdNoticeLocked(member lease.Term) (err error) {
	g.leaving, err = g.keeper.Lease(g.noticeName, g.leaseOptions(noticeMetadata(member.Token()))...)
	if err != nil {
		g.leaving = nil
		return err
	}
	g.announcing = g.holdAside(g.life, g.leaving, nil, turns{})
	return nil
}

// Leave ends the membership: it announces it, gives up leadership, releases the
// member lease and then the announcement, each when the one before is confirmed.
// It is bounded by ctx, and by a few times lease.Config.OperationTimeout.
//
// Afterwards followers are not called any more. On an error (lease.ErrUnknown,
// or the context's) the node has left by its own account, and what may still stand
// in the store is released in the background, or ends with its TTL. The work that
// rested on the membership must have stopped before.
func (g *Group) Leave(ctx context.Context) error {
	if err := g.check(ctx); err != nil {
		return err
	}
	if g.life.Err() != nil {
		return nil
	}
	if err := g.AnnounceLeaving(ctx); err != nil && !errors.Is(err, lease.ErrClosed) {
		g.log.Warn("leaving without notice", zap.Error(err))
	}
	g.mu.Lock()
	standing, announcing := g.standing, g.announcing
	g.mu.Unlock()
	standing.end(ctx)
	g.stop()
	wait(ctx, g.done)
	announcing.end(ctx)
	if err := g.shut(ctx); err != nil {
		return fmt.Errorf("leave group %.64q: %w", g.names.group, err)
	}
	return nil
}

// shut ends everything and gives back what may be left.
func (g *Group) shut(ctx context.Context) error {
	g.end()
	g.mu.Lock()
	handles := []*lease.Handle{nil, g.member, g.leaving}
	if g.election != nil {
		handles[0] = g.election.lease
	}
	g.settleLocked()
	g.unlock()
	var errs []error
	for _, h := range handles {
		if h != nil {
			errs = append(errs, h.Close(ctx))
		}
	}
	_ = boundary.Wait(ctx, &g.holders) // what they left behind Close has told
	return errors.Join(errs...)
}
