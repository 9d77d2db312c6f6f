package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/stateful"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// This part moves a shard from node to node:
//
//	host                                             next
//	   ◀── Order ── coordinator
//	   ───────────── Invite ─────────────────────────▶
//	   ◀──────────── Offer, or declined ──────────────  lease.Offer
//	  mail turned away, entities told to stop, ended
//	  lease.Transfer
//	   ───────────── EntityState … HandedOver ───────▶  lease.Adopt, entities started
//	   ───────────── backlog and stragglers ─────────▶  (package route)
//
// The entities run on until there is an offer. If there is none they are not
// disturbed, and the coordinator hears of it.

// invite asks the node that is to host next for an offer.
func (c *controller) invite(s *shard) {
	c.invites++
	s.inv.Ask(port{c, s}, c.invites, s.inv.To, func() {
		c.log.Info("no answer to an invitation", zap.String("shard", s.name), zap.String("peer", s.inv.To.GetAddress()))
		c.fire(s, handover.Declined)
	})
}

func (c *controller) onOffer(m *wire.Offer) {
	if s := c.byName[m.Name]; s != nil {
		s.inv.Answered(port{c, s}, m, func() { c.fire(s, handover.Declined) })
	}
}

// transfer hands the lease over to who made the offer, unless that is too old.
func (c *controller) transfer(s *shard) {
	if s.inv.TooOld(port{c, s}) {
		c.fire(s, handover.Stale)
		return
	}
	s.inv.Halt()
	h, offer := s.handle, s.inv.Offer
	s.term = nil
	c.async(func() func() {
		err := h.Transfer(c.life, offer)
		return func() { c.onTransferEnded(s, err) }
	})
}

// onTransferEnded tells the new owner. If it is not known whether it is that, it
// tries, and this node gives up what may still be its own. Over a store that can't transfer
// the shard is released, and the coordinator has it taken by the same node: nothing failed.
func (c *controller) onTransferEnded(s *shard, err error) {
	inv, took := s.inv, c.clock.Now().Mono-s.since
	if err == nil || errors.Is(err, lease.ErrUnknown) {
		c.sendStates(s)
	} else {
		s.inv.Off(port{c, s})
		c.loseStates(s, fmt.Errorf("%w: %w", errNotTaken, err))
	}
	if errors.Is(err, lease.ErrUnsupported) {
		c.log.Info("the store can't transfer a shard: it is released", zap.String("shard", s.name), zap.String("peer", inv.Offer.Owner.ID))
		c.fire(s, handover.NotTransferred)
		return
	}
	if err != nil {
		c.log.Warn("a shard was not handed over", zap.String("shard", s.name), zap.String("peer", inv.Offer.Owner.ID),
			zap.Error(err))
		c.fail(s.number, err.Error())
		c.fire(s, handover.NotTransferred)
		return
	}
	c.counts.moved.Add(1)
	c.metrics.handOff.Record(took)
	c.event(Event{Kind: HandedOff, Shard: s.number, After: took, Peer: inv.Offer.Owner})
	c.fire(s, handover.Transferred)
}

// onInvite makes an offer, or says no.
func (c *controller) onInvite(m *wire.Invite) {
	s := c.byName[m.Name]
	if s == nil || m.From == nil {
		return
	}
	p := port{c, s}
	switch {
	case !c.hosts:
		handover.Decline(p, m.From, m.Number, "it only forwards")
	case c.leaving.on:
		handover.Decline(p, m.From, m.Number, "it is leaving")
	case !c.mayHost():
		handover.Decline(p, m.From, m.Number, ErrNotHosting.Error())
	default:
		s.take.Invited(p, &handover.Of(c.system).Taken, m, func(states *handover.States) { s.loseStates(states, errNotTaken) })
	}
}

// onHandedOver takes the old host's word.
func (c *controller) onHandedOver(m *wire.HandedOver) {
	s := c.byName[m.Name]
	switch {
	case s == nil:
	case s.take.Word(port{c, s}, m, func(states int) { s.missed(states, handover.ErrMissing) }):
	case !m.Off && s.rest.of.Is(m.From, m.Number):
		s.missed(s.rest.of.Word(m), handover.ErrMissing)
		c.endRest(s)
	}
}

// port is a shard as the two sides of a hand-over see it.
type port struct {
	c *controller
	s *shard
}

func (p port) Name() string                         { return p.s.name }
func (p port) Self() *wire.Node                     { return p.c.self }
func (p port) Clock() store.Clock                   { return p.c.clock }
func (p port) Log() *zap.Logger                     { return p.c.log.With(zap.String("shard", p.s.name)) }
func (p port) Life() context.Context                { return p.c.life }
func (p port) State() handover.Machine              { return p.s.m }
func (p port) Fire(e handover.Event)                { p.c.fire(p.s, e) }
func (p port) Send(address string, m proto.Message) { p.c.send(address, m) }
func (p port) Post(f func())                        { p.c.post(f) }
func (p port) Aside(f func() func())                { p.c.async(f) }

func (p port) Held(by *wire.Node) bool {
	record, ok := p.c.table.Record(p.s.number)
	return ok && record.Owner.Address == by.Address
}

func (p port) Record() func(context.Context) (lease.Record, error) {
	return func(ctx context.Context) (lease.Record, error) { return p.c.keeper.Get(ctx, p.s.name) }
}

// Offers returns what makes an offer.
func (p port) Offers() func(context.Context) (lease.Offer, error) {
	h, err := p.c.leaseOf(p.s)
	if err != nil {
		return func(context.Context) (lease.Offer, error) { return lease.Offer{}, err }
	}
	return h.Offer
}

// This part is the state that entities hand over with their shard.

var (
	errNotTaken    = errors.New("the shard was not handed over")
	errNobody      = errors.New("no node took the shard over")
	errNotRestored = errors.New("the shard went before the entity had begun with its state")
)

// leaveState takes the state of an entity that has ended, if its shard is on the
// way to another node; on the entity's goroutine.
func (s *shard) leaveState(e *entry, h *tenure, a actor.Actor, lost bool) {
	collects, cause := false, error(nil)
	_, keeps := a.(hosting.Stateful)
	s.do(func() {
		collects, cause = h.collects, h.cause
		if keeps && h.ending && !collects && cause == nil && s.r.set.stateLimit > 0 {
			h.unasked++
		}
	})
	if !collects {
		return
	}
	if lost {
		if keeps {
			s.coldStart(e.id, cmp.Or(cause, lease.ErrExpired))
		}
		return
	}
	state, err := stateful.Take(a, s.r.set.stateLimit)
	if err == nil && state != nil {
		s.do(func() { err = s.handoverStatesOf(h).Put(e.id, state) })
	}
	if err != nil {
		s.coldStart(e.id, err)
	}
}

// handoverStatesOf returns the states that entities of a hosting left.
func (s *shard) handoverStatesOf(h *tenure) *handover.States {
	if h.handoverStates == nil {
		h.handoverStates = handover.NewStates(&handover.Of(s.r.system).Left)
	}
	return h.handoverStates
}

// restoreState gives a new entity the state that was handed over, on the entity's goroutine. If
// that fails the entity ends, and the next one starts cold.
func (s *shard) restoreState(e *entry, h *tenure, a actor.Actor) error {
	var state []byte
	has := false
	s.do(func() { state, has = h.states.Take(e.id) })
	if !has {
		return nil // the shard is gone: the loss of its states was reported
	}
	err := stateful.Give(a, state)
	if err == nil {
		return nil
	}
	s.coldStart(e.id, err)
	if errors.Is(err, stateful.ErrNot) {
		return nil // it can start as it is
	}
	return err
}

// keepStates also packs states that were never restored, of a hosting that has ended. Without a
// successor it reports cold starts.
func (s *shard) keepStates(h *tenure) {
	var lost []string
	why, unasked := error(nil), 0
	s.do(func() {
		unasked = h.unasked
		switch {
		case h.collects && (h.cause == nil || errors.Is(h.cause, ErrOverdue)):
			lost, why = s.handoverStatesOf(h).Absorb(h.states), handover.ErrBudget
		case h.cause != nil:
			lost, why = h.states.Drop(), h.cause
		default:
			lost, why = h.states.Drop(), errNotRestored
		}
	})
	for _, id := range lost {
		s.coldStart(id, why)
	}
	s.missed(unasked, errNobody)
}

func (s *shard) coldStart(id string, why error) {
	s.r.log.Warn("cold start: an entity's state was not handed over", zap.String("shard", s.name), zap.String("id",
		id), zap.Error(why))
	s.r.event(Event{Kind: ColdStart, Shard: s.number, ID: id, States: 1, Reason: why})
}

// missed reports a number of states, without the ids of their entities.
func (s *shard) missed(states int, why error) {
	if states > 0 {
		s.r.log.Warn("cold starts", zap.String("shard", s.name), zap.Int("states", states), zap.Error(why))
		s.r.event(Event{Kind: ColdStart, Shard: s.number, States: states, Reason: why})
	}
}

// loseStates reports states that no entity gets.
func (s *shard) loseStates(states *handover.States, why error) {
	var lost []string
	s.do(func() { lost = states.Drop() })
	for _, id := range lost {
		s.coldStart(id, why)
	}
}

// sendStates sends the states that entities left to the shard's next host, and then HandedOver.
func (c *controller) sendStates(s *shard) {
	inv, states := s.inv, (*handover.States)(nil)
	s.do(func() { states, s.last.handoverStates = s.last.handoverStates, nil })
	n := s.number
	x := handover.Send(handover.Config{
		System: c.system, Clock: c.clock, Actor: c.names.Process, Limit: c.payload + wire.Headroom,
		Name: s.name, Number: inv.Number, Nonce: inv.Offer.Nonce, From: c.self, To: inv.To, Within: inv.Offer.Lifetime,
		Holds: func() bool {
			rec, ok := c.table.Record(n)
			return ok && rec.Owner.Incarnation == inv.To.Incarnation
		},
		Cold: func(id string, why error) { s.coldStart(id, why) },
		Done: func(x *handover.Sending) { c.post(func() { c.onSent(x) }) },
	}, states)
	c.sendings[x] = struct{}{}
}

// handing counts the states and HandedOvers that other nodes have not taken yet, or will not take.
func (c *controller) handing() (n int) {
	for x := range c.sendings {
		n += x.Left() + x.Missed()
	}
	return n
}

// onSent forgets a hand-over whose states were all taken or given up.
func (c *controller) onSent(x *handover.Sending) {
	if _, ok := c.sendings[x]; ok {
		delete(c.sendings, x)
		c.leaving.left -= int64(x.Missed())
	}
}

// onState keeps what an entity handed over.
func (c *controller) onState(m *wire.EntityState) {
	s := c.byName[m.Name]
	if s == nil || ValidateEntityID(m.Key) != nil || ShardOf(m.Key, c.typ.Shards) != s.number {
		return
	}
	t := s.take.States
	if !t.Is(m.From, m.Number) {
		if t = s.rest.of; !t.Is(m.From, m.Number) {
			return
		}
	}
	if err := t.State(m); err != nil {
		s.coldStart(m.Key, err)
	}
}

// rest is a hand-over whose end this node did not wait for. States that come later are reported.
type rest struct {
	of    *handover.Taking
	ours  bool // the record said that the shard was handed over
	timer actors.Alarm
}

// begin ends the present hand-over, and returns the states that came.
func (c *controller) begin(s *shard) *handover.States {
	s.take.Halt()
	t := s.take.States
	s.take.States = nil
	if t == nil {
		return nil
	}
	states := t.Begin()
	if !t.Complete() {
		c.endRest(s)
		s.rest.of, s.rest.ours = t, s.take.Ours() && c.set.stateLimit > 0
		c.later(&s.rest.timer, handover.LateFor, func() { c.endRest(s) })
	}
	return states
}

// endRest stops waiting for the states that a hand-over lacks.
func (c *controller) endRest(s *shard) {
	t, ours := s.rest.of, s.rest.ours
	s.rest.timer.Stop()
	s.rest = rest{}
	if t == nil {
		return
	}
	missing, known := t.End()
	s.missed(missing, handover.ErrMissing)
	if !known && ours {
		s.r.log.Warn("no word came from a shard's old host", zap.String("shard", s.name))
		s.r.event(Event{Kind: ColdStart, Shard: s.number, Reason: handover.ErrNoWord})
	}
}
