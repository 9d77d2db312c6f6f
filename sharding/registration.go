package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/agree"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
)

// registration is this node's part in the type: a lease by which the others know that it takes
// part, and which its shards' leases hang on.
type registration struct {
	*node
	lease    *lease.Handle
	admitted atomic.Bool     // Start has succeeded: shards may be hosted
	part     context.Context // while this node takes part
	withdraw context.CancelFunc
}

func (g *registration) leaseName() string {
	name, _ := g.names.Region(g.keeper.Owner()) // the group has checked the owner
	return name
}

// errStarting is why a node takes no shard before its Start has succeeded.
var errStarting = errors.New("the node is starting")

// whyNot is nil if this node may host: it is a member, and is registered for the type.
func (g *registration) whyNot() error {
	if !g.admitted.Load() {
		return errStarting
	}
	if _, ok := g.group.Term(); !ok {
		return ErrNotHosting
	}
	if t, ok := g.lease.Term(); !ok || !t.CheckAlive() {
		return ErrNotHosting
	}
	return nil
}

// enroll registers this node, and goes on doing so. A membership that was lost just now begins
// again by itself: it is waited for.
func (g *registration) enroll() error {
	var won bool
	var err error
	for until := g.elapsed() + startWithin; ; g.sleep(memberWait) {
		won, err = g.lease.Acquire(g.life)
		if !errors.Is(err, lease.ErrParentLost) || errors.Is(err, lease.ErrClosed) || g.elapsed() >= until {
			break
		}
	}
	if err != nil {
		return err
	}
	if !won {
		return fmt.Errorf("%q: %w", g.leaseName(), lease.ErrTakenOver)
	}
	if err := g.agree(g.life); err != nil {
		return err
	}
	g.ops.Go(g.hold)
	return nil
}

// startWithin bounds how long Start waits for the records, and then for the membership.
const startWithin = 10 * time.Second

// hold registers this node again when its registration was lost, and not before it is a
// member.
func (g *registration) hold() {
	for failing := false; g.part.Err() == nil; {
		t, ok := g.lease.Term()
		if _, member := g.group.Term(); !ok && !member {
			g.sleep(memberWait)
			continue
		}
		if !ok {
			if won, err := g.register(); !won {
				if err != nil && g.part.Err() == nil && !failing {
					g.log.Warn("registering failed, trying on", zap.Error(err))
				}
				failing = err != nil
				g.sleep(time.Duration(float64(time.Second) * (0.5 + mrand.Float64()/2)))
			}
			continue
		}
		select {
		case <-t.Context().Done():
			g.sleep(10 * time.Millisecond)
			if errors.Is(context.Cause(t.Context()), lease.ErrParentLost) {
				g.unregister()
			}
		case <-g.part.Done():
		}
	}
}

// memberWait is how often a node looks whether it is a member again.
const memberWait = 50 * time.Millisecond

// unregister has the record given up of a registration that was lost with the membership, when
// all shards have been: the next membership begins then, or soon without that.
func (g *registration) unregister() {
	ctx, cancel := context.WithCancel(g.life)
	cancel() // it goes on by itself
	if err := g.lease.Release(ctx); err != nil {
		g.log.Debug("the registration is given up with the membership", zap.Error(err))
	}
}

// register takes part again, unless the others have agreed on another number of
// shards meanwhile: first as they are, then with this node among them.
func (g *registration) register() (won bool, err error) {
	if err = g.agree(g.part); err == nil {
		if won, err = g.lease.Acquire(g.part); won {
			if err = g.agree(g.part); err != nil {
				_ = g.lease.Release(g.life)
				won = false
			}
		}
	}
	if errors.Is(err, ErrShardCount) {
		g.event(Event{Kind: CountMismatch, Shard: -1, Reason: err})
	}
	return won, err
}

// This part is what the nodes of a type must agree on. On the number of shards they
// must at any time, and by their versions they must understand each other: Start fails.
// Other settings may differ while they are changed, node by node: that is logged.

// agree finds out whether every node and every shard that lives has as many shards as this one, and
// a version that this one talks to.
func (g *registration) agree(ctx context.Context) error {
	for _, prefix := range []string{g.names.Regions, g.names.Shards} {
		recs, err := g.keeper.List(ctx, prefix)
		if err != nil {
			return err
		}
		for _, rec := range recs {
			n, err := directory.CountOf(rec)
			if err = cmp.Or(err, directory.Said.Check(rec)); err != nil {
				return err
			}
			if rec.Owner.Incarnation == g.self.Incarnation && rec.TTL > 0 {
				g.ttl.Store(int64(rec.TTL))
			}
			if n != g.typ.Shards {
				return fmt.Errorf("sharding type %q: %w: %d here, %d at node %q; it can be changed only when no node runs the type",
					g.typ.Name, ErrShardCount, g.typ.Shards, n, rec.Owner.ID)
			}
		}
	}
	return nil
}

// agreement is what should be the same on every node, as people and records read it.
func (n *node) agreement() string {
	s := &n.set
	strategy := fmt.Sprintf("%T", s.Strategy)
	if by := preferencesOf(s.Strategy); by != nil {
		strategy += " of " + by.String()
	}
	return fmt.Sprintf("message=%d remember=%t state=%d moves=%d perHost=%d strategy=%s",
		n.payload+wire.Headroom, s.store != nil, s.stateLimit, s.Limits.Moves, s.Limits.PerHost, agree.Word(strategy))
}
