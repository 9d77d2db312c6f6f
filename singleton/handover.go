package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/outside"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
)

// This file is the host's side of a planned hand-over:
//
//	host                                             candidate
//	   ◀──────────── Candidate{rank} ─────────────────  knows who hosts
//	   ───────────── Invite ─────────────────────────▶
//	   ◀──────────── Offer, or declined ──────────────  lease.Offer
//	  gate draining, child told to stop, child ended
//	  lease.Transfer
//	   ───────────── EntityState, HandedOver ────────▶  lease.Adopt, child started
//	   ───────────── backlog and stragglers ─────────▶  (package route)
//
// The child runs on until there is an offer. Where nobody makes one the lease is
// released, and whoever waits for it takes it.

// maxSilent bounds how many candidates in turn may leave an invitation unanswered:
// the others are not asked any more.
const maxSilent = 5

// maxCandidates bounds how many nodes a host remembers.
const maxCandidates = 64

// candidate is a node that would take over.
type candidate struct {
	node *wire.Node
	id   string
	rank uint32
}

// invitation is the hand-over that a host prepares.
type invitation struct {
	handover.Giving
	asking  []candidate   // the first is being asked
	refused bool          // somebody said no
	silent  int           // how many did not answer
	peer    string        // the ID of who made the offer
	since   time.Duration // when the child was told to stop
}

// onCandidate notes who would take over, or would not any more.
func (c *controller) onCandidate(m *wire.Candidate) {
	if m.Name != c.lname || m.From == nil {
		return
	}
	inc := m.From.Incarnation
	known := c.candidates[inc].node
	switch {
	case known != nil && !known.Is(m.From):
		return // in the name of another
	case m.Gone:
		delete(c.candidates, inc)
		return
	case known == nil && len(c.candidates) >= maxCandidates:
		return
	}
	c.candidates[inc] = candidate{m.From, m.Id, m.Rank}
	c.outrank()
	if m.Leads {
		c.onRival(lease.Owner{ID: m.Id, Incarnation: inc, Address: m.From.Address})
	}
}

// outrank hands over to a node that is preferred to this one.
func (c *controller) outrank() {
	if c.phase == Active && len(c.set.preferred) > 0 && slices.ContainsFunc(c.ranked(), func(x candidate) bool { return x.rank < c.rank() }) {
		c.settleIn(func() { c.fire(outranked) })
	}
}

// rank is how much this node is preferred; the lower the better.
func (c *controller) rank() uint32 { return c.rankOf(c.ownID()) }

func (c *controller) rankOf(id string) uint32 {
	i := slices.Index(c.set.preferred, id)
	if i < 0 {
		i = len(c.set.preferred)
	}
	return uint32(i)
}

func (c *controller) ownID() string {
	if c.keeper == nil {
		return ""
	}
	return c.keeper.Owner().ID
}

// ranked lists the candidates, the best first.
func (c *controller) ranked() []candidate {
	var all []candidate
	for _, x := range c.candidates {
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.id, b.id), cmp.Compare(a.node.Incarnation, b.node.Incarnation))
	})
	return all
}

// invite asks those who may take over, one after the other.
func (c *controller) invite() {
	c.invites++
	c.inv = invitation{}
	if _, ok := lease.As[lease.Transferable](c.lease); ok {
		c.inv.asking = c.heirs()
	}
	c.askNext()
}

// heirs are those the lease may go to: the leader, if it is to follow one; those
// that are preferred to this node, if that is why; and on the end anybody.
func (c *controller) heirs() []candidate {
	var all []candidate
	if l := c.leader; l.Address != "" && l.Address != c.proxy.Self.Address {
		all = append(all, candidate{node: wire.NodeOf(l), id: l.ID})
	}
	if c.set.leadership != nil && !c.closing() {
		return all
	}
	for _, x := range c.ranked() {
		if len(all) > 0 && all[0].node.Address == x.node.Address {
			continue
		}
		if c.closing() || x.rank < c.rank() {
			all = append(all, x)
		}
	}
	return all
}

func (c *controller) askNext() {
	if len(c.inv.asking) == 0 {
		if c.inv.refused {
			c.fire(handover.Declined)
		} else {
			c.fire(unreachable)
		}
		return
	}
	// Of its incarnation a source of leadership may know nothing.
	c.inv.Ask(c.port(), c.invites, &wire.Node{Address: c.inv.asking[0].node.Address}, c.silence)
}

// silence: the candidate who was asked did not answer in time. It is told that an offer
// which is still to come is void.
func (c *controller) silence() {
	c.inv.Off(c.port())
	if c.inv.silent++; c.inv.silent == maxSilent {
		c.log.Warn("several candidates in turn did not answer, the others are not asked", zap.Int("others", len(c.inv.asking)-1))
		c.inv.asking = c.inv.asking[:1]
	}
	c.noAnswer(false)
}

// noAnswer goes on to the next candidate.
func (c *controller) noAnswer(refused bool) {
	c.inv.Halt()
	c.inv.refused = c.inv.refused || refused
	if !refused {
		delete(c.candidates, c.inv.asking[0].node.Incarnation)
	}
	c.inv.asking = c.inv.asking[1:]
	c.askNext()
}

func (c *controller) onOffer(m *wire.Offer) {
	c.inv.Answered(c.port(), m, func() { c.noAnswer(true) })
	if c.inv.To == m.From {
		c.inv.peer = m.Id
	}
}

// callOff tells who was asked that nothing comes of it.
func (c *controller) callOff() {
	c.inv.Off(c.port())
	c.inv = invitation{since: c.inv.since}
}

// transfer hands the lease over to who made the offer, unless that is too old.
func (c *controller) transfer() {
	if c.inv.TooOld(c.port()) {
		c.fire(handover.Stale)
		return
	}
	c.inv.Halt()
	l, _ := lease.As[lease.Transferable](c.lease) // checked by invite
	offer := c.inv.Offer
	c.async(func() any {
		return &transferEnded{outside.CallApart(func() error { return l.Transfer(c.life, offer) })}
	})
}

// onTransferEnded tells the new owner. If it is not known whether it is that, it
// tries, and this node gives up what may still be its own.
func (c *controller) onTransferEnded(err error) {
	token, inv := c.token(), c.inv
	states := c.states.take()
	if err == nil || errors.Is(err, lease.ErrUnknown) {
		c.sendState(inv, states)
	} else {
		c.callOff()
		if len(states.Drop()) > 0 {
			c.event(Event{Kind: ColdStart, Token: token, Reason: fmt.Errorf("the lease was not transferred: %w", err)})
		}
	}
	c.inv = invitation{}
	if err != nil {
		c.log.Warn("the lease was not handed over", zap.String("node", inv.peer), zap.Error(err))
		c.fire(handover.NotTransferred)
		return
	}
	c.endTerm()
	c.measure(func(i *instruments) { i.handOver.Record(c.life, (c.clock.Now().Mono - inv.since).Seconds(), i.attrs) })
	c.event(Event{Kind: HandedOver, Token: token, After: c.clock.Now().Mono - inv.since, Peer: inv.Offer.Owner})
	c.fire(handover.Transferred)
}

// sendState sends what the child left to the next host, and then the word that it is
// that.
func (c *controller) sendState(inv invitation, states *handover.States) {
	x := handover.Send(handover.Config{
		System: c.system, Clock: c.clock, Actor: managerID(c.name), Limit: remoting.PayloadLimit(c.system) + wire.Headroom,
		Name: c.lname, Number: inv.Number, Nonce: inv.Offer.Nonce, From: c.proxy.Self, To: inv.To, Within: inv.Offer.Lifetime,
		Sole:  true,
		Holds: func() bool { return c.Status().Host.Incarnation == inv.To.Incarnation },
		Cold: func(_ string, why error) {
			c.log.Warn("the state that was handed over is lost", zap.Error(why))
			c.event(Event{Kind: ColdStart, Reason: why})
		},
		Done: func(x *handover.Sending) { c.proxy.post(&sent{x}) },
	}, states)
	c.sendings[x] = struct{}{}
}

// handing counts what next hosts have not taken yet.
func (c *controller) handing() (n int) {
	for x := range c.sendings {
		n += x.Left()
	}
	return n
}

// peerLost forgets a node whose link broke.
func (c *controller) peerLost(address string) {
	c.proxy.Gone(address)
	if c.proxy.known && c.proxy.host.Owner.Address == address {
		c.known.broke, c.known.brokeAt = address, c.clock.Now().Mono
		c.tellTrouble() // before the askers say why
		c.asked.Broke(address, c.proxy.out.Link(address))
	}
	for inc, x := range c.candidates {
		if x.node.Address == address {
			delete(c.candidates, inc)
		}
	}
	c.take.LinkBroke(c.port(), address)
	c.inv.LinkBroke(c.port(), address)
	switch {
	case c.phase == Inviting && len(c.inv.asking) > 0 && c.inv.asking[0].node.Address == address:
		c.inv.Off(c.port())
		c.noAnswer(false)
	case c.phase == Asking && c.inv.To.GetAddress() == address:
		c.fire(handover.Declined)
	}
}

// cameBack takes what was kept for a node that never took it.
func (c *controller) cameBack(msg *cameBack) {
	c.proxy.Router.Returned(route.ItemsOf(msg.kept))
}

// yield gives the lease up under a child that still runs.
func (c *controller) yield() {
	c.event(Event{Kind: Yielded, Token: c.token()})
	c.log.Warn("the lease is given up though the child still runs", zap.Uint64("token", uint64(c.token())))
	c.ops.Go(func() {
		if err := outside.CallApart(func() error { return c.lease.Release(context.Background()) }); err != nil {
			c.log.Warn("release not confirmed, left to the keeper or the TTL", zap.Error(err))
		}
	})
	c.proxy.Left()
}
