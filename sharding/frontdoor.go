package sharding

import (
	"strings"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/fastpath"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// This part is what takes mail from other nodes.

// frontDoor is the process that other nodes send to.
type frontDoor struct {
	noActor
	shards shards
}

// SendUserMessage implements actor.Process. It runs on the goroutine that read the
// message from a link.
func (p *frontDoor) SendUserMessage(pid *actor.PID, message any) {
	if p.over.Load() { // a PID goes on standing for the process it was first used for
		by, _ := p.system.ProcessRegistry.GetLocal(p.names.Process)
		if next, ok := by.(*frontDoor); ok && next != p {
			next.SendUserMessage(pid, message)
			return
		}
	}
	_, msg, sender := actor.UnwrapEnvelope(message)
	msg, kept := transport.Unwrap(msg)
	if p.over.Load() || !wire.Fits(msg) {
		p.deadLetter(pid, wire.Local(msg, sender, nil))
		return
	}
	switch m := msg.(type) {
	case *wire.Envelope:
		p.arrived(m, kept)
	case *wire.Marker, *wire.MarkerAck, *wire.MarkerWaits:
		p.shards.route(m)
	case *wire.Invite, *wire.Offer, *wire.HandedOver, *wire.EntityState, *wire.Order, *wire.Report, *wire.Depart,
		*wire.Stranded:
		p.post(msg)
	default:
		p.deadLetter(pid, message)
	}
}

// arrived takes an envelope of another node, straight to its entity if that is
// active and nothing has to be considered.
func (p *frontDoor) arrived(m *wire.Envelope, kept bool) {
	s := p.shards.of(m.Key)
	if m.Name != "" { // else it is the short form: the key tells
		s = nil
		if h := p.shards.named(m.Name); h != nil {
			s = &h.shard
		}
	}
	if s == nil {
		p.undeliverable(&wire.Nack{Reason: wire.Reason_REASON_NO_HOLDER, Type: m.Type, Name: m.Name, Key: m.Key,
			Detail: "no shard of that name here"}, m.Sender.PID(), m)
		return
	}
	m.Name = s.name
	s.touched()
	s.asked.Came(p.system, m.Sender)
	if !s.arrived(m) {
		s.receive(m, kept)
	}
}

// This part is what other nodes send to by the short way (package fastpath).

// resolve returns the process that stands for an id of the short way.
func (p *frontDoor) resolve(rest string) (actor.Process, bool) {
	token, id, ok := fastpath.Split(rest)
	if !ok || ValidateEntityID(id) != nil {
		return nil, false
	}
	return &fastProcess{p.noActor, p.shards.of(id), token, id}, true
}

// fastProcess is what other nodes send to by the short way.
type fastProcess struct {
	noActor
	s     *shard
	token lease.Token
	id    string
}

// SendSystemMessage implements actor.Process, as noActor does.
func (p *fastProcess) SendSystemMessage(pid *actor.PID, message any) {
	p.noActor.SendSystemMessage(fastpath.Addressee(p.system, pid), message)
}

// SendUserMessage implements actor.Process. It runs on the goroutine that read the
// message from a link.
func (p *fastProcess) SendUserMessage(pid *actor.PID, message any) {
	s := p.s
	if s.over.Load() || !sendable(message) {
		p.deadLetter(fastpath.Addressee(s.system, pid), message)
		return
	}
	s.touched()
	if s.here.Load() && !wire.IsUnread(message) && s.deliverFast(p.token, p.id, message) {
		return
	}
	e, err := s.encode(p.id, message)
	if err != nil { // it came as a message that can be encoded
		p.deadLetter(fastpath.Addressee(s.system, pid), message)
		return
	}
	e.Name, e.Token, e.Left = s.name, uint64(p.token), fastpath.Left(pid)
	s.receive(e, false)
}

// This part is what stands for entities in protoactor's registry.

// refs are the PIDs of entities that may be kept.
type refs struct {
	noActor
	deliver func(id string, envelope any)
}

// ref registers the PID that it returns: protoactor asks no one about a PID of its own
// address that is not in its registry. All that is kept is its name. A Region that has
// ended registers none: the name may be the next one's, and would stay.
func (p *refs) ref(id string) *actor.PID {
	name := p.names.Refs + id
	registry := p.system.ProcessRegistry
	if by, _ := registry.GetLocal(name); by != actor.Process(p) && !p.over.Load() {
		bucket := registry.LocalPIDs.GetBucket(name)
		bucket.Upsert(name, actor.Process(p), func(taken bool, by, own any) any {
			if taken && p.over.Load() {
				return by
			}
			return own
		})
		if p.over.Load() { // forget may have been before
			bucket.RemoveCb(name, func(_ string, by any, _ bool) bool { return by == actor.Process(p) })
		}
	}
	return actor.NewPID(registry.Address, name)
}

// forget takes out of the registry what ref put there.
func (p *refs) forget() {
	for _, bucket := range p.system.ProcessRegistry.LocalPIDs.LocalPIDs {
		var names []string
		bucket.IterCb(func(name string, by any) {
			if by == actor.Process(p) {
				names = append(names, name)
			}
		})
		for _, name := range names {
			bucket.Remove(name)
		}
	}
}

// SendUserMessage implements actor.Process.
func (p *refs) SendUserMessage(pid *actor.PID, message any) {
	id, ok := strings.CutPrefix(pid.Id, p.names.Refs)
	if !ok || p.over.Load() || !sendable(message) {
		p.deadLetter(pid, message)
		return
	}
	if batch, ok := actor.UnwrapEnvelopeMessage(message).(actor.MessageBatch); ok { // as protoactor's mailboxes do
		for _, m := range batch.GetMessages() {
			p.SendUserMessage(pid, m)
		}
	}
	p.deliver(id, message)
}
