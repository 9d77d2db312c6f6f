package sharding

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
)

// This file has the handles of shards' leases: a shard gets one when it is needed first.

// leaseOf returns the handle of the shard's lease. It hangs on the node's registration for the
// type, and that on its membership: with either, this node has lost all its shards.
func (c *controller) leaseOf(s *shard) (*lease.Handle, error) {
	if s.handle != nil {
		return s.handle, nil
	}
	h, err := c.keeper.Lease(s.name, append(c.options(directory.Metadata(c.typ.Shards, true)), lease.WithParent(c.regionLease))...)
	if err != nil {
		return nil, err
	}
	h.OnLost(func(lease.Loss) { c.post(&lossNoticed{s.number}) })
	s.handle = h
	return h, nil
}

// keepHandles is for how long the handle of a shard's lease is kept that is away: the shard
// may come back, and what was asked for under it ends meanwhile.
const keepHandles = time.Minute

// closeHandles closes those of shards that have been away for so long; more if there are
// others.
func (c *controller) closeHandles(after time.Duration) (more bool) {
	now := c.clock.Now().Mono
	for i := range c.shards {
		s := &c.shards[i]
		switch h := s.handle; {
		case h == nil || s.m.Phase != handover.Away:
		case now < s.away+after:
			more = true
		default:
			s.handle = nil
			c.ops.Go(func() { _ = h.Close(context.Background()) }) // bounded by the lease's own bounds
		}
	}
	return more
}

// tidyLater has handles closed that are not needed: else a node would keep those of all shards
// that it has ever hosted.
func (c *controller) tidyLater() {
	if c.tidying == nil {
		c.tidying = c.clock.AfterFunc(keepHandles, func() { c.post(&handlesUnneeded{}) })
	}
}
