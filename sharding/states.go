package sharding

import (
	"cmp"
	"errors"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/stateful"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// This file is the state that entities hand over with their shard.

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
