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
func (s *hold) invite() {
	s.invites++
	s.inv.Ask(port{s}, s.invites, s.inv.To, func() {
		s.log.Info("no answer to an invitation", zap.String("shard", s.name), zap.String("peer", s.inv.To.GetAddress()))
		s.fire(handover.Declined)
	})
}

// transfer hands the lease over to who made the offer, unless that is too old.
func (s *hold) transfer() {
	s.inv.Transfer(port{s}, s.counts.traces, s.leaveTrace, s.since, s.handle.Transfer, s.onTransferEnded)
}

// onTransferEnded tells the new owner. If it is not known whether it is that, it
// tries, and this node gives up what may still be its own. Over a store that can't transfer
// the shard is released, and the coordinator has it taken by the same node: nothing failed.
func (s *hold) onTransferEnded(err error) {
	inv, took := s.inv, s.clock.Now().Mono-s.since
	if err == nil || errors.Is(err, lease.ErrUnknown) {
		s.sendStates()
	} else {
		s.inv.Off(port{s})
		s.loseLeft(fmt.Errorf("%w: %w", errNotTaken, err))
	}
	if errors.Is(err, lease.ErrUnsupported) {
		s.log.Info("the store can't transfer a shard: it is released", zap.String("shard", s.name), zap.String("peer", inv.Offer.Owner.ID))
		s.fire(handover.NotTransferred)
		return
	}
	if err != nil {
		s.log.Warn("a shard was not handed over", zap.String("shard", s.name), zap.String("peer", inv.Offer.Owner.ID),
			zap.Error(err))
		s.fail(s.number, err.Error())
		s.fire(handover.NotTransferred)
		return
	}
	s.counts.moved.Add(1)
	s.counts.handOff.Record(took)
	s.event(Event{Kind: HandedOff, Shard: s.number, After: took, Peer: inv.Offer.Owner})
	s.fire(handover.Transferred)
}

// port is a shard as the two sides of a hand-over see it.
type port struct{ *hold }

func (p port) Name() string                         { return p.name }
func (p port) Self() *wire.Node                     { return p.self }
func (p port) Clock() store.Clock                   { return p.clock }
func (p port) Log() *zap.Logger                     { return p.log.With(zap.String("shard", p.name)) }
func (p port) Life() context.Context                { return p.life }
func (p port) State() handover.Machine              { return p.m }
func (p port) Fire(e handover.Event)                { p.fire(e) }
func (p port) Send(address string, m proto.Message) { p.send(address, m) }
func (p port) Post(f func())                        { p.post(f) }
func (p port) Aside(f func() func())                { p.async(f) }

func (p port) Held(by *wire.Node) bool {
	record, ok := p.table.Record(p.number)
	return ok && record.Owner.Address == by.Address
}

func (p port) Record() func(context.Context) (lease.Record, error) {
	return func(ctx context.Context) (lease.Record, error) { return p.keeper.Get(ctx, p.name) }
}

// Offers returns what makes an offer.
func (p port) Offers() func(context.Context) (lease.Offer, error) {
	h, err := p.leaseOf()
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
func (h *tenure) leaveState(e *entry, a actor.Actor, lost bool) {
	s := h.s
	collects, cause := false, error(nil)
	_, keeps := a.(hosting.Stateful)
	s.do(func() {
		collects, cause = h.collects, h.cause
		if keeps && h.ending && !collects && cause == nil && s.set.stateLimit > 0 {
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
	state, err := handover.HandOver(a, s.set.stateLimit)
	if err == nil && state != nil {
		s.do(func() { err = h.leftLocked().Put(e.id, state) })
	}
	if err != nil {
		s.coldStart(e.id, err)
	}
}

// leftLocked returns the states that entities of a hosting left.
func (h *tenure) leftLocked() *handover.States {
	if h.handoverStates == nil {
		h.handoverStates = handover.NewStates(&handover.Of(h.s.system).Left)
	}
	return h.handoverStates
}

// restoreState gives a new entity the state that was handed over, on the entity's goroutine. If
// that fails the entity ends, and the next one starts cold.
func (h *tenure) restoreState(e *entry, a actor.Actor) error {
	s := h.s
	var state []byte
	has := false
	s.do(func() { state, has = h.states.Take(e.id) })
	if !has {
		return nil // the shard is gone: the loss of its states was reported
	}
	return handover.Restore(a, state, func(why error) { s.coldStart(e.id, why) })
}

// keepStates also packs states that were never restored, of a hosting that has ended. Without a
// successor it reports cold starts.
func (h *tenure) keepStates() {
	s := h.s
	var lost []string
	why, unasked := error(nil), 0
	s.do(func() {
		unasked = h.unasked
		switch {
		case h.collects && (h.cause == nil || errors.Is(h.cause, ErrOverdue)):
			lost, why = h.leftLocked().Absorb(h.states), handover.ErrBudget
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

func (s *roster) coldStart(id string, why error) {
	s.counts.warned.cold.Warn(s.log, s.clock.Now().Mono, "cold start: an entity's state was not handed over", zap.String("shard", s.name),
		zap.String("id", id), zap.Error(why))
	s.event(Event{Kind: ColdStart, Shard: s.number, ID: id, States: 1, Reason: why})
}

// missed reports a number of states, without the ids of their entities.
func (s *roster) missed(states int, why error) {
	if states > 0 {
		s.log.Warn("cold starts", zap.String("shard", s.name), zap.Int("states", states), zap.Error(why))
		s.event(Event{Kind: ColdStart, Shard: s.number, States: states, Reason: why})
	}
}

// loseStates reports states that no entity gets.
func (s *roster) loseStates(states *handover.States, why error) {
	var lost []string
	s.do(func() { lost = states.Drop() })
	for _, id := range lost {
		s.coldStart(id, why)
	}
}

// sendStates sends the states that entities left to the shard's next host, and then HandedOver.
func (s *hold) sendStates() {
	inv, states := s.inv, (*handover.States)(nil)
	s.do(func() { states, s.last.handoverStates = s.last.handoverStates, nil })
	n := s.number
	x := handover.Send(handover.Config{
		System: s.system, Clock: s.clock, Actor: s.names.Process, Limit: s.payload + wire.Headroom,
		Name: s.name, Number: inv.Number, Nonce: inv.Offer.Nonce, From: s.self, To: inv.To, Within: inv.Offer.Lifetime, Trace: inv.Trace,
		Holds: func() bool {
			rec, ok := s.table.Record(n)
			return ok && rec.Owner.Incarnation == inv.To.Incarnation
		},
		Cold: func(id string, why error) { s.coldStart(id, why) },
		Done: func(x *handover.Sending) { s.post(func() { s.sent(x) }) },
	}, states)
	s.sendings[x] = struct{}{}
}

// sent forgets a hand-over whose states were all taken or given up.
func (b *books) sent(x *handover.Sending) {
	if _, ok := b.sendings[x]; ok {
		delete(b.sendings, x)
		b.givenUp += x.Missed()
	}
}

// handing counts the states and HandedOvers that other nodes have not taken yet, or will not take.
func (b *books) handing() (n int) {
	for x := range b.sendings {
		n += x.Left() + x.Missed()
	}
	return n
}

// state keeps what an entity handed over.
func (s *hold) state(m *wire.EntityState) {
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

// invited makes an offer, or says no.
func (s *hold) invited(m *wire.Invite, refusal string) {
	if refusal != "" {
		handover.Decline(port{s}, m.From, m.Number, refusal)
		return
	}
	lost := func(states *handover.States) { s.loseStates(states, errNotTaken) }
	s.take.Invited(port{s}, &handover.Of(s.system).Taken, m, lost)
}

// handedOver takes the old host's word.
func (s *hold) handedOver(m *wire.HandedOver) {
	switch {
	case s.take.Word(port{s}, m, func(states int) { s.missed(states, handover.ErrMissing) }):
	case !m.Off && s.rest.of.Is(m.From, m.Number):
		s.missed(s.rest.of.Word(m), handover.ErrMissing)
		s.endRest()
	}
}

// begin ends the present hand-over, and returns the states that came.
func (s *hold) begin() *handover.States {
	s.take.Halt()
	t := s.take.States
	s.take.States = nil
	if t == nil {
		return nil
	}
	states := t.Begin()
	if !t.Complete() {
		s.endRest()
		s.rest.of, s.rest.ours = t, s.take.Ours() && s.set.stateLimit > 0
		s.later(&s.rest.timer, handover.LateFor, s.endRest)
	}
	return states
}

// endRest stops waiting for the states that a hand-over lacks.
func (s *hold) endRest() {
	t, ours := s.rest.of, s.rest.ours
	s.rest.timer.Stop()
	s.rest = rest{}
	if t == nil {
		return
	}
	missing, known := t.End()
	s.missed(missing, handover.ErrMissing)
	if !known && ours {
		s.log.Warn("no word came from a shard's old host", zap.String("shard", s.name))
		s.event(Event{Kind: ColdStart, Shard: s.number, Reason: handover.ErrNoWord})
	}
}

// rest is a hand-over whose end this node did not wait for. States that come later are reported.
type rest struct {
	of    *handover.Taking
	ours  bool // the record said that the shard was handed over
	timer actors.Alarm
}
