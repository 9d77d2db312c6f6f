package sharding

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/coordinator"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
)

// This file begins, ends and guards what a node hosts, for the control loop.

// open lets mail through to entities, under the present term.
func (c *controller) open(s *shard) {
	t, states := s.term, c.begin(s)
	if x, ok := t.(lease.Continuing); ok && states.Len() > 0 && !x.Adopted(s.take.Offer) {
		s.loseStates(states, errNotTaken) // others may have hosted since
	}
	s.take = handover.Accepting{}
	h := &tenure{term: t, states: states}
	g := &guardian{noActor: noActor{c.Region}, s: s, h: h}
	ok := false
	if t.CheckAlive() {
		if g.pid, ok = c.system.ProcessRegistry.Add(g, fmt.Sprintf("%s/%d-%d", c.names.Process, s.number, t.Token())); !ok { // a token is used once
			c.log.Error("a shard's guardian could not be made: an actor has its name", zap.String("shard", s.name),
				zap.String("name", g.pid.Id))
		}
	}
	if !ok {
		s.do(func() { s.last = &tenure{term: t, ending: true} })
		s.loseStates(states, errNotTaken)
		c.fire(s, handover.Lost)
		return
	}
	h.guardian = g
	s.seen = max(s.seen, t.Token())
	c.fire(s, handover.Opened)
	s.do(func() {
		s.tenure, s.last = h, h
		for _, id := range states.Keys() {
			if s.entries[id] == nil {
				s.beginLocked(id)
			}
		}
		if c, ok := t.(lease.Continuing); ok && c.Continues() != 0 {
			s.routing().Host(s.r.self, c.Continues(), true) // who routes by it is right, too
		}
		s.routing().Open(t.Token())
	})
	c.metrics.hosted.Add(1)
	c.log.Info("hosting", zap.String("shard", s.name), zap.Uint64("token", uint64(t.Token())))
	c.event(Event{Kind: Hosted, Shard: s.number, Token: t.Token()})
	s.recoverAll(h)
}

// loseStates reports states that entities left, and that no entity gets.
func (c *controller) loseStates(s *shard, why error) {
	if s.last != nil {
		s.loseStates(s.last.handoverStates, why)
	}
}

// drain begins a planned end.
func (c *controller) drain(s *shard) {
	h := s.last
	s.since = c.clock.Now().Mono
	s.do(func() {
		s.tenure = nil
		h.collects = s.m.Offer && c.set.stateLimit > 0
		s.routing().Ending(false)
		s.endAllLocked(h)
	})
	c.later(&s.deadline, c.set.Stop, func() { c.fire(s, handover.Overdue) })
	c.remind(s, firstReminder)
}

// lose shuts the entities of a shard off that was lost.
func (c *controller) lose(s *shard) {
	h := s.last
	cause := context.Cause(s.term.Context())
	if cause == nil {
		cause = lease.ErrExpired
	}
	if errors.Is(cause, lease.ErrParentLost) {
		cause = fmt.Errorf("%w: %w", ErrNotHosting, cause)
	}
	s.deadline.Stop()
	s.since = c.clock.Now().Mono
	s.do(func() {
		s.tenure = nil
		h.cause = cause
		s.routing().Ending(true)
		s.endAllLocked(h)
	})
	c.log.Warn("a shard was lost", zap.String("shard", s.name), zap.Uint64("token", uint64(h.term.Token())), zap.Error(cause))
	c.event(Event{Kind: Lost, Shard: s.number, Token: h.term.Token(), Reason: cause})
	c.remind(s, firstReminder)
}

// forceStop shuts entities off that did not stop in time.
func (c *controller) forceStop(s *shard) {
	s.do(func() {
		s.last.cause = ErrOverdue
		s.endAllLocked(s.last)
	})
}

// yield gives the shard up though entities still run.
func (c *controller) yield(s *shard) {
	c.event(Event{Kind: Yielded, Shard: s.number, Token: s.last.term.Token()})
	c.log.Warn("a shard is given up though entities still run", zap.String("shard", s.name))
	h := s.handle
	c.ops.Go(func() {
		if err := h.Release(context.Background()); err != nil {
			c.log.Warn("release not confirmed, left to the keeper or the TTL", zap.String("shard", s.name), zap.Error(err))
		}
	})
	s.do(func() { s.routing().Left() })
}

// onEmpty: the entities of a hosting that ends are gone, and their mail is back.
func (c *controller) onEmpty(s *shard, h *tenure) {
	if s.last != h {
		return
	}
	s.deadline.Stop()
	s.reminder.Stop()
	s.keepStates(h)
	s.do(func() {
		s.routing().Closed()
		s.last = &tenure{term: h.term, ending: true, told: true, handoverStates: h.handoverStates}
	})
	if h.guardian != nil {
		c.system.ProcessRegistry.Remove(h.guardian.pid)
		c.metrics.hosted.Add(-1)
	}
	c.fire(s, handover.Ended)
}

func (c *controller) onReleased(s *shard, err error) {
	if err != nil {
		c.log.Warn("release not confirmed, left to the keeper or the TTL", zap.String("shard", s.name), zap.Error(err))
	}
	c.event(Event{Kind: Released, Shard: s.number, Reason: err})
	c.fire(s, handover.Released)
}

// forget ends what belonged to a hold that is over. Timers that were stopped still have what
// they were for: the hosting that is gone, and with it what is remembered of the shard.
func (c *controller) forget(s *shard) {
	s.deadline.Stop()
	s.reminder.Stop()
	s.inv.Halt()
	s.loseStates(c.begin(s), errNotTaken)
	s.inv, s.take, s.term = handover.Giving{}, handover.Accepting{}, nil
	s.do(func() { s.last = nil })
	s.away = c.clock.Now().Mono
	c.tidyLater()
}

// onRecord notes the holder of a shard.
func (c *controller) onRecord(s *shard, record lease.Record, known bool) {
	if known {
		s.seen = max(s.seen, record.Token)
	}
	node := wire.NodeOf(record.Owner)
	s.do(func() { s.routing().Host(node, record.Token, known) })
	if known {
		transport.Of(c.system).Expect(node)
	}
	if s.m.Phase == handover.Offered {
		s.take.Recorded(port{c, s}, record, known)
	}
}

func (c *controller) onPeerGone(address string) {
	c.coordinating(func(co *coordinator.Coordinator) { co.PeerGone(address) })
	for i := range c.shards {
		s := &c.shards[i]
		s.cutOff(address)
		s.take.LinkBroke(port{c, s}, address)
		s.inv.LinkBroke(port{c, s}, address)
		if s.m.Phase.Asks() && s.inv.To.GetAddress() == address {
			c.fire(s, handover.Declined)
		}
	}
}

// firstReminder is when entities that do not stop are reported first; then at
// intervals that double.
const firstReminder = 5 * time.Second

func (c *controller) remind(s *shard, next time.Duration) {
	c.later(&s.reminder, next, func() {
		took := c.clock.Now().Mono - s.since
		n := 0
		s.do(func() { n = len(s.entries) })
		c.log.Warn("entities do not stop", zap.String("shard", s.name), zap.Int("entities", n), zap.Duration("since", took))
		c.event(Event{Kind: NotStopping, Shard: s.number, Token: s.last.term.Token(), After: took})
		c.remind(s, min(2*next, time.Hour))
	})
}

// ttl is that of the shard's lease, as far as is known.
func (c *controller) ttl(s *shard) time.Duration {
	if rec, ok := c.table.Record(s.number); ok && rec.TTL > 0 {
		return rec.TTL
	}
	return c.leaseTTL()
}

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
	h.OnLost(func(lease.Loss) { s.lossNoticed() })
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
	if !c.tidying.Pending() {
		c.later(&c.tidying, keepHandles, func() {
			if c.closeHandles(keepHandles) {
				c.tidyLater()
			}
		})
	}
}
