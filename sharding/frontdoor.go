package sharding

import (
	"strings"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/fastpath"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/entities"
)

// This part is what takes mail from other nodes.

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

// This part is what other nodes send to by the short way (package fastpath).

// resolve returns the process that stands for an id of the short way.
func (r *Region) resolve(rest string) (actor.Process, bool) {
	token, id, ok := fastpath.Split(rest)
	if !ok || ValidateEntityID(id) != nil {
		return nil, false
	}
	return &fastProcess{noActor{r}, &r.shards[ShardOf(id, r.typ.Shards)], token, id}, true
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
	p.noActor.SendSystemMessage(fastpath.Addressee(p.s.r.system, pid), message)
}

// SendUserMessage implements actor.Process. It runs on the goroutine that read the
// message from a link.
func (p *fastProcess) SendUserMessage(pid *actor.PID, message any) {
	s := p.s
	if s.r.over.Load() || !sendable(message) {
		outlet.Of(s.r.system).DeadLetter(fastpath.Addressee(s.r.system, pid), message)
		return
	}
	s.touched()
	if s.here.Load() && !wire.IsUnread(message) && s.deliverFast(p.token, p.id, message) {
		return
	}
	e, err := s.encode(p.id, message)
	if err != nil { // it came as a message that can be encoded
		outlet.Of(s.r.system).DeadLetter(fastpath.Addressee(s.r.system, pid), message)
		return
	}
	e.Name, e.Token, e.Left = s.name, uint64(p.token), fastpath.Left(pid)
	s.receive(e, false)
}

// This part is what stands for entities in protoactor's registry.

// Ref returns a PID of the entity id that may be kept, given to actors of other
// nodes, not watched, and sent to, wherever the entity is, runs or not. From
// other nodes it carries what protoactor's remote does, their own Regions carry what
// package remoting knows as well. It works while this Region does, and the name of each
// id is kept until then, about 150 bytes. Those of one id are Equal. Errors: lease.ErrInvalid for a bad id, ErrClosed.
func (r *Region) Ref(id string) (*actor.PID, error) {
	if !r.made() {
		return nil, errUnmade
	}
	if err := ValidateEntityID(id); err != nil {
		return nil, err
	}
	if r.over.Load() {
		return nil, r.closed()
	}
	return r.ref(id), nil
}

// ref registers the PID that it returns: protoactor asks no one about a PID of its own
// address that is not in its registry. All that is kept is its name. A Region that has
// ended registers none: the name may be the next one's, and would stay.
func (r *Region) ref(id string) *actor.PID {
	name := r.names.Refs + id
	registry := r.system.ProcessRegistry
	if p, _ := registry.GetLocal(name); p != actor.Process(r.refs) && !r.over.Load() {
		bucket := registry.LocalPIDs.GetBucket(name)
		bucket.Upsert(name, actor.Process(r.refs), func(taken bool, by, own any) any {
			if taken && r.over.Load() {
				return by
			}
			return own
		})
		if r.over.Load() { // forgetRefs may have been before
			bucket.RemoveCb(name, func(_ string, p any, _ bool) bool { return p == actor.Process(r.refs) })
		}
	}
	return actor.NewPID(registry.Address, name)
}

// forgetRefs takes out of the registry what ref put there.
func (r *Region) forgetRefs() {
	for _, bucket := range r.system.ProcessRegistry.LocalPIDs.LocalPIDs {
		var names []string
		bucket.IterCb(func(name string, p any) {
			if p == actor.Process(r.refs) {
				names = append(names, name)
			}
		})
		for _, name := range names {
			bucket.Remove(name)
		}
	}
}

// refProcess is what all Refs of a Region stand for.
type refProcess struct{ noActor }

// SendUserMessage implements actor.Process.
func (p *refProcess) SendUserMessage(pid *actor.PID, message any) {
	id, ok := strings.CutPrefix(pid.Id, p.r.names.Refs)
	if !ok || p.r.over.Load() || !sendable(message) {
		outlet.Of(p.r.system).DeadLetter(pid, message)
		return
	}
	if batch, ok := actor.UnwrapEnvelopeMessage(message).(actor.MessageBatch); ok { // as protoactor's mailboxes do
		for _, m := range batch.GetMessages() {
			p.SendUserMessage(pid, m)
		}
	}
	p.r.deliver(id, message)
}
