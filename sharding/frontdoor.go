package sharding

import (
	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/entities"
)

// This file is what takes mail from other nodes.

// noActor is what processes have in common that stand for no actor.
type noActor struct{ r *Region }

// SendSystemMessage implements actor.Process: a watcher learns that there is
// none.
func (p noActor) SendSystemMessage(pid *actor.PID, message any) {
	outlet.Of(p.r.system).DeadSignal(pid, message)
}

// Stop implements actor.Process: it can't be stopped.
func (noActor) Stop(*actor.PID) {}

// frontDoor is the process that other nodes send to.
type frontDoor struct{ noActor }

// SendUserMessage implements actor.Process. It runs on the goroutine that read the
// message from a link.
func (p *frontDoor) SendUserMessage(pid *actor.PID, message any) {
	r := p.r
	if r.over.Load() { // a PID goes on standing for the process it was first used for
		if next, ok := registryOf(r.system).Load(r.names.Key); ok && next != r {
			(&frontDoor{noActor{next.(*Region)}}).SendUserMessage(pid, message)
			return
		}
	}
	_, msg, sender := actor.UnwrapEnvelope(message)
	msg, kept := transport.Unwrap(msg)
	if r.over.Load() || !wire.Fits(msg) {
		outlet.Of(r.system).DeadLetter(pid, wire.Local(msg, sender, nil))
		return
	}
	switch m := msg.(type) {
	case *wire.Envelope:
		r.arrived(m, kept)
	case *wire.Marker, *wire.MarkerAck, *wire.MarkerWaits:
		r.route(m)
	case *wire.Invite, *wire.Offer, *wire.HandedOver, *wire.EntityState, *wire.Order, *wire.Report, *wire.Depart,
		*wire.Stranded, *wire.Inquiry, *wire.Account:
		r.post(msg)
	default:
		outlet.Of(r.system).DeadLetter(pid, message)
	}
}

// arrived takes an envelope of another node, straight to its entity if that is
// active and nothing has to be considered.
func (r *Region) arrived(m *wire.Envelope, kept bool) {
	var s *shard
	switch {
	case m.Name == "": // the short form: the key tells
		s = &r.shards[ShardOf(m.Key, r.typ.Shards)]
	default:
		s = r.byName[m.Name]
	}
	if s == nil {
		r.undeliverable(&wire.Nack{Reason: wire.Reason_REASON_NO_HOLDER, Type: m.Type, Name: m.Name, Key: m.Key,
			Detail: "no shard of that name here"}, m.Sender.PID(), m)
		return
	}
	m.Name = s.name
	s.touched()
	s.asked.Came(r.system, m.Sender)
	if !s.arrived(m) {
		s.receive(m, kept)
	}
}

// receive has the Router take an envelope. Of what waits for tokens yet to come, which
// may be made up, a node holds half of what it may hold, so that there is room for the
// rest.
func (s *shard) receive(m *wire.Envelope, kept bool) {
	s.do(func() {
		r, waits := s.routing(), s.r.waiting.Load()
		switch it := (&route.Item{Wire: m}); {
		case s.r.over.Load():
			s.Drop(it, "the region has ended")
		case !kept && 2*waits >= int64(s.r.set.total) && r.Ahead(lease.Token(m.Token)),
			s.r.full() && !r.Routable() && (!kept || waits >= custodyTotal*int64(s.r.set.total)):
			s.Drop(it, "as much waits on this node as may")
		default:
			r.Receive(m, m.Footprint(), kept)
		}
	})
}

// arrived gives an envelope to its entity, if that is active and nothing has to be
// considered.
func (s *shard) arrived(m *wire.Envelope) bool {
	if !s.here.Load() || ShardOf(m.Key, s.r.typ.Shards) != s.number {
		return false
	}
	mail, err := s.open(m)
	if err != nil {
		return false // the Router refuses it
	}
	return s.deliverFast(lease.Token(m.Token), m.Key, mail.envelope)
}

// deliverFast gives a message that was routed by token, 0 on this node, to an entity that is
// active, if nothing has to be considered.
func (s *shard) deliverFast(token lease.Token, id string, envelope any) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.direct || token > 0 && token > s.tenure.term.Token() {
		return false
	}
	e := s.entries[id]
	if e == nil || e.Phase != entities.Active {
		return false
	}
	s.give(e, envelope)
	return true
}

// route gives a message of another node to the Router of a shard.
func (r *Region) route(m any) {
	name := m.(interface{ GetName() string }).GetName()
	s := r.byName[name]
	if s == nil {
		r.log.Debug("a message about no shard of this type", zap.String("name", name))
		return
	}
	s.touched()
	s.do(func() { s.routing().Receive(m, 0, true) })
}

// touched notes that other nodes send mail here.
func (s *shard) touched() {
	if !s.served.Load() {
		s.served.Store(true)
	}
}
