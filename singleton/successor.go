package singleton

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/outside"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// This file is the side of a planned hand-over that takes over; handover.go has
// the picture.

// offerWait is how long an offer may take to be made. It is shorter than
// inviteWait: a node that can't reach its store says so, and is not taken for one
// that can't be reached.
const offerWait = inviteWait / 2

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
	mute   bool // no word came from it in time
	states *handover.Taking
}

// introduce tells the host that this node would take over.
func (c *controller) introduce(gone bool) {
	host := c.proxy.Holder()
	if _, ok := lease.As[lease.Transferable](c.lease); !ok || c.set.proxyOnly || host == nil {
		return
	}
	if !gone && (c.closing || !c.able()) {
		return
	}
	c.proxy.Send(host.Address, &wire.Candidate{Name: c.lname, From: c.proxy.Self, Id: c.ownID(), Rank: c.rank(), Gone: gone, Leads: c.leads})
	halt(c.herald)
	if !gone && (c.leads || c.rank() < c.rankOf(c.proxy.host.Owner.ID)) {
		c.herald = c.clock.AfterFunc(introduceAgain, func() { c.proxy.post(&introduceDue{}) })
	}
}

// introduceAgain is the pause after which a node that leads, or is preferred to
// the host, introduces itself again: the host may not have been able to hand
// over, or to hear of it.
const introduceAgain = 5 * time.Second

// onInvite makes an offer, or says no.
func (c *controller) onInvite(m *wire.Invite) {
	if m.Name != c.lname || m.From == nil {
		return
	}
	_, can := lease.As[lease.Transferable](c.lease)
	switch {
	case !can:
		c.decline(m.From, m.Number, "its lease can't be handed over")
	case c.set.proxyOnly:
		c.decline(m.From, m.Number, "it only forwards")
	case c.phase == Offered && m.Number == c.take.number && m.From.Is(c.take.from):
		c.makeOffer() // the host's child takes its time: a new one in place of the old
	case c.proxy.refuses(m.From):
		c.decline(m.From, m.Number, c.proxy.judged.refused.Error())
	case c.phase != Standby:
		c.decline(m.From, m.Number, fmt.Sprintf("it is %v", c.phase))
	default:
		c.forgetOffer()
		c.take = taking{from: m.From, number: m.Number, states: handover.Take(&handover.Of(c.system).Taken, m.From, m.Number)}
		c.fire(asked)
	}
}

func (c *controller) decline(to *wire.Node, number uint64, why string) {
	c.proxy.Send(to.Address, &wire.Offer{Name: c.lname, From: c.proxy.Self, Number: number, Declined: why})
}

// declineInvitation answers the present invitation with no.
func (c *controller) declineInvitation() {
	if c.take.from != nil {
		c.decline(c.take.from, c.take.number, fmt.Sprintf("it is %v", c.phase))
	}
}

// makeOffer prepares to own the name.
func (c *controller) makeOffer() {
	l, _ := lease.As[lease.Transferable](c.lease) // checked by onInvite
	c.async(func() any {
		ctx, cancel := context.WithCancel(c.life)
		defer cancel()
		defer c.clock.AfterFunc(offerWait, cancel).Stop()
		o, err := outside.Apart(func() (lease.Offer, error) { return l.Offer(ctx) })
		return &offerReady{o, err}
	})
}

func (c *controller) onOfferReady(msg *offerReady) {
	switch {
	case c.phase != Offering && c.phase != Offered:
		return // the hand-over is over; the Keeper sees to the offer
	case msg.err != nil:
		c.log.Warn("no offer could be made", zap.Error(msg.err))
		c.fire(offerFailed)
		return
	}
	c.take.offer, c.take.until = msg.offer, c.clock.Now().Mono+msg.offer.Lifetime
	if c.phase == Offered {
		c.sendOffer()
		return
	}
	c.fire(offerMade)
}

// sendOffer answers the invitation.
func (c *controller) sendOffer() {
	o, t := c.take.offer, &c.take
	c.proxy.Send(t.from.Address, wire.OfferOf(o, c.proxy.Self, t.number))
	n := t.number
	halt(t.timer)
	t.timer = c.clock.AfterFunc(o.Lifetime, func() { c.proxy.post(&offerExpired{n}) })
}

// current reports whether number is that of the hand-over under way.
func (c *controller) current(number uint64) bool {
	return number == c.take.number && (c.phase == Offering || c.phase == Offered)
}

// onHandedOver takes the old host's word.
func (c *controller) onHandedOver(m *wire.HandedOver) {
	if m.Name != c.lname || !c.take.states.Is(m.From, m.Number) {
		return
	}
	if m.Off {
		if c.current(m.Number) {
			c.fire(offerOver)
		}
		return
	}
	if c.take.states.Word(m) > 0 {
		c.log.Warn("the state that was handed over did not come")
		c.event(Event{Kind: ColdStart, Reason: handover.ErrMissing})
	}
	if c.current(m.Number) {
		c.take.offer.Nonce = m.Nonce // of several made while its child stopped
		c.fire(taken)
	}
}

// onState takes the state that goes before the old host's word. One that came too late
// was told when this node went on without it.
func (c *controller) onState(m *wire.EntityState) {
	if m.Name != c.lname || m.Key != sole || !c.take.states.Is(m.From, m.Number) {
		return
	}
	if err := c.take.states.State(m); err != nil {
		c.log.Warn("the state that was handed over is lost", zap.Error(err))
		c.event(Event{Kind: ColdStart, Reason: err})
	}
}

// noticeOwn goes on without word when the record says that the lease is ours.
func (c *controller) noticeOwn(rec lease.Record, known bool) {
	if known && c.phase == Offered && rec.Owner.Incarnation == c.proxy.Self.Incarnation {
		c.awaitWord()
	}
}

// awaitWord waits for the old host's word, and with it the state, and then goes on
// without.
func (c *controller) awaitWord() {
	t, now := &c.take, c.clock.Now().Mono
	d := handover.Patience(t.until-now, t.broken)
	if t.word != nil && t.wordAt <= now+d {
		return
	}
	halt(t.word)
	n := t.number
	t.wordAt = now + d
	t.word = c.clock.AfterFunc(d, func() { c.proxy.post(&ownRecord{n}) })
}

// linkBroke cuts the wait for the old host's word short.
func (c *controller) linkBroke(address string) {
	if t := &c.take; t.from != nil && t.from.Address == address {
		t.broken = true
		if t.word != nil && c.phase == Offered {
			c.awaitWord()
		}
	}
}

func (c *controller) onOwnRecord(msg *ownRecord) {
	if !c.current(msg.number) {
		return
	}
	c.log.Warn("no word came from the old host")
	c.take.mute = true
	c.fire(taken)
}

var errNotTaken = errors.New("the lease was not taken up with it")

// adopted reports whether the present term is what was handed over. An Adopt that
// came late may have won a name that others have had since.
func (c *controller) adopted() bool {
	t, ok := c.term.(lease.Continuing)
	return !ok || t.Adopted(c.take.offer)
}

// takeUp returns the state that came, and tells if nothing did.
func (c *controller) takeUp() *handover.States {
	t := c.take.states
	if t == nil {
		return nil
	}
	c.take.states = nil
	states := t.Begin()
	if c.take.mute && !t.Complete() && states.Len() == 0 && c.set.stateLimit > 0 {
		c.event(Event{Kind: ColdStart, Reason: handover.ErrNoWord})
	}
	return states
}

// forgetState forgets what was handed over with a lease that did not come: others
// may have hosted since when the next one does.
func (c *controller) forgetState() {
	if len(c.takeUp().Drop()) > 0 {
		c.log.Warn("the state that was handed over is lost", zap.Error(errNotTaken))
		c.event(Event{Kind: ColdStart, Reason: errNotTaken})
	}
	c.forgetOffer()
}

// forgetOffer forgets the hand-over that this node was invited to.
func (c *controller) forgetOffer() {
	halt(c.take.timer)
	halt(c.take.word)
	c.take.states.Begin().Drop()
	c.take = taking{}
}

// adopt takes up what was handed over.
func (c *controller) adopt() {
	halt(c.take.timer)
	halt(c.take.word)
	l, _ := lease.As[lease.Transferable](c.lease)
	offer := c.take.offer
	ctx, cancel := context.WithCancel(c.life)
	c.cancelAcq = cancel
	c.async(func() any {
		defer cancel()
		ok, err := outside.Apart(func() (bool, error) { return l.Adopt(ctx, offer) })
		return &acquired{ok, err}
	})
}
