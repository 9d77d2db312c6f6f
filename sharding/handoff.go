package sharding

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

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
// disturbed, and the coordinator is told.

// inviteWait is how long a node may take to make an offer.
const inviteWait = time.Second

// invitation is the hand-over that a host prepares.
type invitation struct {
	number uint64
	node   *wire.Node // who is asked, or made the offer
	offer  lease.Offer
	at     time.Duration // when it came
	timer  lease.Timer
}

// taking is the hand-over that this node was invited to.
type taking struct {
	from   *wire.Node
	number uint64
	offer  lease.Offer
	until  time.Duration // the offer lives
	timer  lease.Timer   // until the offer is over
	word   lease.Timer   // until the old host's word is not waited for any more
	wordAt time.Duration
	broken bool // the link to the old host broke
	states *handover.Taking
}

func (t *taking) halt() {
	halt(t.timer)
	halt(t.word)
}

// taking reports whether number is that of the hand-over under way.
func (s *shard) taking(number uint64) bool {
	return number == s.take.number && (s.m.phase == Offering || s.m.phase == Offered)
}

// invite asks the node that is to host next for an offer.
func (c *controller) invite(s *shard) {
	halt(s.inv.timer)
	c.invites++
	n := c.invites
	s.inv.number = n
	c.send(s.inv.node.GetAddress(), &wire.Invite{Name: s.name, From: c.self, Number: n})
	s.inv.timer = c.clock.AfterFunc(inviteWait, func() { c.post(&inviteExpired{s.number, n}) })
}

func (c *controller) onOffer(m *wire.Offer) {
	s := c.byName[m.Name]
	if s == nil || m.Number != s.inv.number || !m.From.Is(s.inv.node) {
		return
	}
	switch {
	case m.Declined != "":
		c.log.Info("an invitation was declined", zap.String("shard", s.name), zap.String("node", m.From.GetAddress()),
			zap.String("why", m.Declined))
		halt(s.inv.timer)
		c.fire(s, declined)
	case s.m.phase == Inviting, s.m.phase == Asking:
		halt(s.inv.timer)
		s.inv.at = c.clock.Now().Mono
		s.inv.offer = m.Lease()
		c.fire(s, invited)
	}
}

// callOff tells who was asked that nothing comes of it.
func (c *controller) callOff(s *shard) {
	halt(s.inv.timer)
	if s.inv.node != nil {
		c.send(s.inv.node.Address, &wire.HandedOver{Name: s.name, From: c.self, Number: s.inv.number, Off: true})
	}
}

// transfer hands the lease over to who made the offer, unless that is too old.
func (c *controller) transfer(s *shard) {
	if c.clock.Now().Mono-s.inv.at > s.inv.offer.Lifetime/2 {
		c.fire(s, stale)
		return
	}
	h, offer := s.handle, s.inv.offer
	s.term = nil
	c.async(func() any { return &transferEnded{s.number, h.Transfer(c.life, offer)} })
}

// onTransferEnded tells the new owner. If it is not known whether it is that, it
// tries, and this node gives up what may still be its own.
func (c *controller) onTransferEnded(s *shard, err error) {
	inv, took := s.inv, c.clock.Now().Mono-s.since
	if err == nil || errors.Is(err, lease.ErrUnknown) {
		c.sendStates(s)
	} else {
		c.callOff(s)
	}
	if err != nil {
		c.log.Warn("a shard was not handed over", zap.String("shard", s.name), zap.String("node", inv.offer.Owner.ID),
			zap.Error(err))
		c.fail(s.number, err.Error())
		c.fire(s, notTransferred)
		return
	}
	c.counts.moved.Add(1)
	c.measure(func(i *instruments) { i.handOff.Record(context.Background(), took.Seconds(), i.attrs) })
	c.event(Event{Kind: HandedOff, Shard: s.number, After: took, Peer: inv.offer.Owner})
	c.moves.add(Move{Shard: s.number, What: HandedOff, To: inv.offer.Owner.ID, Took: took, At: c.now()})
	c.fire(s, transferred)
}

// onInvite makes an offer, or says no.
func (c *controller) onInvite(m *wire.Invite) {
	s := c.byName[m.Name]
	if s == nil || m.From == nil {
		return
	}
	switch {
	case !c.hosts:
		c.decline(s, m.From, m.Number, "it only forwards")
	case c.depart.on:
		c.decline(s, m.From, m.Number, "it is leaving")
	case !c.mayHost():
		c.decline(s, m.From, m.Number, ErrNotHosting.Error())
	case s.m.phase == Offered && m.From.Is(s.take.from):
		// The host's entities took their time: a new one in place of the old.
		s.take.number = m.Number
		s.loseStates(s.take.states.Begin(), errNotTaken) // of a peer that does not know the rules
		s.take.states = handover.Take(&handover.Of(c.system).Taken, m.From, m.Number)
		c.makeOffer(s)
	case s.m.phase != Away:
		c.decline(s, m.From, m.Number, "it is "+s.m.phase.String())
	default:
		s.take = taking{from: m.From, number: m.Number, states: handover.Take(&handover.Of(c.system).Taken, m.From, m.Number)}
		c.fire(s, asked)
	}
}

func (c *controller) decline(s *shard, to *wire.Node, number uint64, why string) {
	c.send(to.Address, &wire.Offer{Name: s.name, From: c.self, Number: number, Declined: why})
}

// makeOffer prepares to own the shard.
func (c *controller) makeOffer(s *shard) {
	h, err := c.leaseOf(s)
	if err != nil {
		c.async(func() any { return &offerReady{shard: s.number, err: err} })
		return
	}
	c.async(func() any {
		o, err := h.Offer(c.life)
		return &offerReady{s.number, o, err}
	})
}

func (c *controller) onOfferReady(s *shard, msg *offerReady) {
	switch {
	case s.m.phase != Offering && s.m.phase != Offered:
		return // the hand-over is over; the Keeper sees to the offer
	case msg.err != nil:
		c.log.Warn("no offer could be made", zap.String("shard", s.name), zap.Error(msg.err))
		c.fire(s, offerFailed)
		return
	}
	s.take.offer, s.take.until = msg.offer, c.clock.Now().Mono+msg.offer.Lifetime
	if s.m.phase == Offered {
		c.sendOffer(s)
		return
	}
	c.fire(s, offerMade)
}

// sendOffer answers the invitation.
func (c *controller) sendOffer(s *shard) {
	o, t := s.take.offer, &s.take
	c.send(t.from.Address, wire.OfferOf(o, c.self, t.number))
	n := t.number
	halt(t.timer)
	t.timer = c.clock.AfterFunc(o.Lifetime, func() { c.post(&offerExpired{s.number, n}) })
}

// onHandedOver takes the old host's word.
func (c *controller) onHandedOver(m *wire.HandedOver) {
	s := c.byName[m.Name]
	switch {
	case s == nil:
	case m.Off:
		if s.taking(m.Number) && s.take.states.Is(m.From, m.Number) {
			s.take.states.End()
			c.fire(s, offerOver)
		}
	case s.take.states.Is(m.From, m.Number):
		s.missed(s.take.states.Word(m), handover.ErrMissing)
		if s.taking(m.Number) {
			s.take.offer.Nonce = m.Nonce // of several made while its entities stopped
			c.fire(s, taken)
		}
	case s.rest.of.Is(m.From, m.Number):
		s.missed(s.rest.of.Word(m), handover.ErrMissing)
		c.endRest(s)
	}
}

// noticeOwn goes on without word when the record says that the lease is ours.
func (c *controller) noticeOwn(s *shard, rec lease.Record, known bool) {
	if known && s.m.phase == Offered && rec.Owner.Incarnation == c.self.Incarnation && s.take.word == nil {
		c.awaitWord(s)
	}
}

// awaitWord waits for the old host's word, and the states before it.
func (c *controller) awaitWord(s *shard) {
	t, now := &s.take, c.clock.Now().Mono
	d := handover.Patience(t.until-now, t.broken)
	if t.word != nil && t.wordAt <= now+d {
		return
	}
	halt(t.word)
	n := t.number
	t.wordAt = now + d
	t.word = c.clock.AfterFunc(d, func() { c.post(&ownRecord{s.number, n}) })
}

// linkBroke cuts the wait for an old host's word short.
func (c *controller) linkBroke(s *shard, address string) {
	if t := &s.take; t.from != nil && t.from.Address == address {
		t.broken = true
		if t.word != nil && s.m.phase == Offered {
			c.awaitWord(s)
		}
	}
}
