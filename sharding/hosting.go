package sharding

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/coordinator"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
	"github.com/holdfast-go/holdfast/sharding/internal/entities"
)

// This part begins, ends and guards what a node hosts, for the control loop.

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
		g.pid, ok = c.system.ProcessRegistry.Add(g, fmt.Sprintf("%s/%d-%d", c.names.Process, s.number, t.Token()))
		if !ok { // a token is used once
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

// This part forgets what was learnt of a store's history that went back, when the
// one that stands is accepted: tokens to come may be lower.

// onHistoryReset forgets all tokens but those of what is held now, which ended with
// the history before: so they are of the one that stands. The table tells of each of
// its parts by itself, so what one has told since is taken up again.
func (c *controller) onHistoryReset() {
	c.highest = 0
	for i := range c.shards {
		s := &c.shards[i]
		s.seen = 0
		if s.term != nil && s.term.CheckAlive() {
			s.seen = s.term.Token()
		}
		rec, known := c.table.Record(i)
		s.do(func() {
			if s.router != nil {
				s.router.Forget(s.seen)
			}
		})
		if known {
			c.onRecord(s, rec, true)
		}
	}
}

// guardian is the parent of a shard's entities on this node under one term. It is no
// actor: who knows its name can't end it, and its children can tell it of their failures
// for as long as they live, or that would be a dead letter in the midst of a failure.
//
// Its children are named by their escaped ids. Each is made on a goroutine of its own:
// what the user's Props do may take its time, or hang, and the others do not wait for it.
type guardian struct {
	noActor
	s   *shard
	h   *tenure
	pid *actor.PID
}

// SendUserMessage implements actor.Process: no message is for it.
func (g *guardian) SendUserMessage(pid *actor.PID, message any) {
	outlet.Of(g.r.system).DeadLetter(pid, message)
}

// SendSystemMessage implements actor.Process. It runs on the goroutine of an entity that
// has failed, or ended.
func (g *guardian) SendSystemMessage(pid *actor.PID, message any) {
	defer g.contain()
	switch m := message.(type) {
	case *actor.Failure:
		g.failed(m.Who, m.Reason)
	case *actor.Terminated: // its gate tells
	default:
		g.noActor.SendSystemMessage(pid, message)
	}
}

func (g *guardian) contain() {
	if p := recover(); p != nil {
		g.s.r.log.Error("a shard's guardian panicked", zap.Any("panic", p), zap.Stack("stack"))
	}
}

// start makes the actor of e, if that is still wanted.
func (g *guardian) start(e *entry) {
	defer g.contain()
	s := g.s
	wanted, has := false, false
	s.do(func() {
		wanted = s.entries[e.id] == e && slices.Contains(s.happensLocked(e, entities.Due), entities.MakeGate)
		has = wanted && g.h.states.Has(e.id)
	})
	if !wanted {
		return
	}
	gt, err := g.gateFor(e, has)
	s.do(func() {
		if err != nil {
			g.sayLocked(e, "an entity could not be made", err)
			s.endedLocked(e, entities.GateFailed)
			return
		}
		e.gate, e.since = gt, s.Now()
		wanted = slices.Contains(s.happensLocked(e, entities.GateMade), entities.Spawn)
	})
	if err != nil || !wanted {
		return
	}
	s.r.active.Add(1)
	g.made(e, gt, boundary.Call(func() error { return g.spawn(e, gt) }))
}

// made: what was to make the actor of e has returned.
func (g *guardian) made(e *entry, gt *gate.Gate, err error) {
	defer g.contain()
	s, pid := g.s, gt.Actor()
	s.do(func() {
		if pid != nil && err != nil && !e.GivenUp {
			g.sayLocked(e, "an entity's Props failed: it is stopped", err)
		}
		switch {
		case e.GivenUp:
			s.r.active.Add(-1)
			s.happensLocked(e, entities.Made)
		case pid == nil:
			s.r.active.Add(-1)
			g.sayLocked(e, "an entity could not be made", err)
			s.endedLocked(e, entities.NotMade)
		case e.gate != gt: // that life is over already
			if err != nil {
				s.after = append(s.after, gt.Stop)
			}
		default:
			// A copy: what a PID was used for keeps the actor in memory.
			e.pid = actor.NewPID(pid.Address, pid.Id)
			if err == nil {
				s.happensLocked(e, entities.Made)
			} else {
				s.happensLocked(e, entities.MadeBadly)
			}
		}
	})
	s.r.tooMany()
}

// sayLocked logs what became of e, once the shard is not locked any more.
func (g *guardian) sayLocked(e *entry, what string, err error) {
	g.s.after = append(g.s.after, func() {
		g.r.log.Error(what, zap.String("shard", g.s.name), zap.String("id", e.id), zap.Error(err))
	})
}

// gateFor makes the gate of e's next life.
func (g *guardian) gateFor(e *entry, has bool) (gt *gate.Gate, err error) {
	s := g.s
	opts := gate.Options{
		Term:     g.h.term,
		Divert:   func(env any) { s.diverted(e, gt, env) },
		Internal: func(env any) { outlet.Of(s.r.system).DeadLetter(s.r.pid, env) },
		OnLost:   func(error) { s.lossNoticed() },
		OnDone:   func() { s.collect(e, gt) },
		OnEnd:    func(a actor.Actor, lost bool) { s.leaveState(e, g.h, a, lost) },
		Journal:  s.r.set.journal,
	}
	if has {
		opts.OnStart = func(a actor.Actor) error { return s.restoreState(e, g.h, a) }
	}
	return gate.New(opts)
}

// spawn makes the actor of e behind gt.
func (g *guardian) spawn(e *entry, gt *gate.Gate) error {
	self := &Entity{s: g.s, id: e.id, g: gt}
	return gt.Spawn(g.r.system, g.pid, g.pid.Id+"/"+url.PathEscape(e.id), g.s.r.props, actor.WithOnInit(func(ctx actor.Context) { ctx.Set(self) }))
}

// failed has an entity end that has panicked; starting it again is its entry's business.
func (g *guardian) failed(child *actor.PID, reason any) {
	defer g.r.stopActor(child)
	name := child.Id[strings.LastIndexByte(child.Id, '/')+1:]
	if id, err := url.PathUnescape(name); err == nil {
		g.s.do(func() {
			if e := g.s.entries[id]; e != nil {
				g.s.happensLocked(e, entities.Panicked)
			}
		})
		g.r.crashed(g.s.number, id, reason)
	}
}
