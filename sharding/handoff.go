package sharding

import (
	"errors"
	"time"

	"go.uber.org/zap"

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

// wordWait is how long word from the old host is waited for, once the record says
// that the lease is ours.
const wordWait = 300 * time.Millisecond

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
	timer  lease.Timer // until the offer is over
	word   lease.Timer // until the old host's word is not waited for any more
	states map[string][]byte
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
	if s == nil || m.Number != s.inv.number || m.From.GetIncarnation() != s.inv.node.GetIncarnation() {
		return
	}
	switch {
	case m.Declined != "":
		c.log.Info("an invitation was declined", zap.String("shard", s.name), zap.String("node", m.From.GetAddress()), zap.String("why", m.Declined))
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
		s.sendStates()
		c.send(inv.node.GetAddress(), &wire.HandedOver{Name: s.name, From: c.self, Number: inv.number, Nonce: inv.offer.Nonce})
	} else {
		c.callOff(s)
	}
	if err != nil {
		c.log.Warn("a shard was not handed over", zap.String("shard", s.name), zap.String("node", inv.offer.Owner.ID), zap.Error(err))
		c.fail(s.number, err.Error())
		c.fire(s, notTransferred)
		return
	}
	c.counts.moved.Add(1)
	c.metrics.handOff.Record(c.life, took.Seconds(), c.metrics.attrs)
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
	case s.m.phase == Offered && m.From.Incarnation == s.take.from.GetIncarnation():
		s.take.number = m.Number // the host's entities took their time: a new one in place of the old
		c.makeOffer(s)
	case s.m.phase != Away:
		c.decline(s, m.From, m.Number, "it is "+s.m.phase.String())
	default:
		s.take = taking{from: m.From, number: m.Number}
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
	s.take.offer = msg.offer
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
	if s == nil || !s.taking(m.Number) || m.From.GetIncarnation() != s.take.from.GetIncarnation() {
		return
	}
	if m.Off {
		c.fire(s, offerOver)
		return
	}
	s.take.offer.Nonce = m.Nonce // of several made while its entities stopped
	c.fire(s, taken)
}

// onState keeps what an entity handed over.
func (c *controller) onState(m *wire.EntityState) {
	s := c.byName[m.Name]
	if s == nil || !s.taking(m.Number) || m.From.GetIncarnation() != s.take.from.GetIncarnation() || ValidateEntityID(m.Key) != nil ||
		ShardOf(m.Key, c.typ.Shards) != s.number {
		return
	}
	if s.take.states == nil {
		s.take.states = map[string][]byte{}
	}
	s.take.states[m.Key] = m.State
}

// noticeOwn goes on without word when the record says that the lease is ours.
func (c *controller) noticeOwn(s *shard, rec lease.Record, known bool) {
	if !known || s.m.phase != Offered || rec.Owner.Incarnation != c.self.Incarnation || s.take.word != nil {
		return
	}
	n := s.take.number
	s.take.word = c.clock.AfterFunc(wordWait, func() { c.post(&ownRecord{s.number, n}) })
}
