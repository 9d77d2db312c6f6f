package sharding

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// This file moves a shard from node to node:
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
		c.log.Info("no answer to an invitation", zap.String("shard", s.name), zap.String("node", s.inv.To.GetAddress()))
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
		c.log.Info("the store can't transfer a shard: it is released", zap.String("shard", s.name), zap.String("node", inv.Offer.Owner.ID))
		c.fire(s, handover.NotTransferred)
		return
	}
	if err != nil {
		c.log.Warn("a shard was not handed over", zap.String("shard", s.name), zap.String("node", inv.Offer.Owner.ID),
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
func (p port) Clock() lease.Clock                   { return p.c.clock }
func (p port) Log() *zap.Logger                     { return p.c.log.With(zap.String("shard", p.s.name)) }
func (p port) Life() context.Context                { return p.c.life }
func (p port) State() handover.Machine              { return p.s.m }
func (p port) Fire(e handover.Event)                { p.c.fire(p.s, e) }
func (p port) Send(address string, m proto.Message) { p.c.send(address, m) }
func (p port) Post(f func())                        { p.c.post(f) }
func (p port) Aside(f func() func())                { p.c.async(f) }

// Offers returns what makes an offer.
func (p port) Offers() func(context.Context) (lease.Offer, error) {
	h, err := p.c.leaseOf(p.s)
	if err != nil {
		return func(context.Context) (lease.Offer, error) { return lease.Offer{}, err }
	}
	return h.Offer
}
