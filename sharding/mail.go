package sharding

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/fastpath"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// Tell sends msg to the entity id, wherever it runs, starting it if need be. It
// returns at once. msg may be an *actor.MessageEnvelope, with sender and headers.
// What one goroutine sends to one entity stays in order.
//
// Errors: lease.ErrInvalid for a bad id, a nil message, or one that only an actor system
// sends, such as *actor.Started; ErrClosed. What can't be
// delivered otherwise goes to the dead letters and is counted (Info).
func (r *Region) Tell(id string, msg any) error {
	if sendable(msg) && r.direct(id, msg) {
		return nil
	}
	if err := r.check(id, msg); err != nil {
		return err
	}
	r.routeMail(id, msg)
	return nil
}

// Request is Tell with a sender, who gets the entity's answer; that of an envelope
// is replaced.
func (r *Region) Request(id string, msg any, sender *actor.PID) error {
	if err := r.check(id, msg); err != nil {
		return err
	}
	r.deliver(id, enclose(msg, sender))
	return nil
}

func (r *Region) check(id string, msg any) error {
	switch err := ValidateEntityID(id); {
	case !r.made():
		return errUnmade
	case err != nil:
		return err
	case !sendable(msg):
		return fmt.Errorf("message to %q: %w: %T, holds nothing, or what only an actor system sends", id, lease.ErrInvalid, msg)
	case r.over.Load():
		return r.closed()
	}
	return nil
}

// deliver is the way of every message of this node.
func (r *Region) deliver(id string, envelope any) {
	if !r.direct(id, envelope) {
		r.routeMail(id, envelope)
	}
}

// ask is deliver for a question. One that an active entity here has is not for cutOff.
func (r *Region) ask(id string, envelope *actor.MessageEnvelope) {
	if !r.direct(id, envelope) {
		r.shards[ShardOf(id, r.typ.Shards)].asked.Expect(r.system, envelope.Sender)
		r.routeMail(id, envelope)
	}
}

// routeMail is the way of a message that does not go to an active entity at once.
func (r *Region) routeMail(id string, envelope any) {
	s := &r.shards[ShardOf(id, r.typ.Shards)]
	if s.elsewhere.Load() && s.forwardFast(id, envelope) {
		return
	}
	s.do(func() { s.accept(&mail{id, envelope}) })
}

// forwardFast sends a message to the node that is known to host the shard, if nothing
// holds it up.
func (s *shard) forwardFast(id string, envelope any) bool {
	// Outside of the lock: others may encode meanwhile.
	var m fastpath.Mail
	if !m.Encode(id, envelope, s.r.payload, s.encode) {
		return false // Accept refuses it
	}
	if !s.straight(&m) {
		return false
	}
	m.Flush()
	return true
}

// straight queues a message for the node that hosts the shard; false if something holds
// it up.
func (s *shard) straight(m *fastpath.Mail) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	node, token, ok := s.router.Through()
	if !ok {
		return false
	}
	ok = s.r.short.Send(&s.path, &s.out, &s.asked, m, "", node, token)
	if ok {
		s.router.Went()
	}
	return ok
}

// direct gives a message to an entity that is active here, without passing another
// mailbox; false if there is none, or mail waits that it could overtake.
func (r *Region) direct(id string, envelope any) bool {
	if r == nil || len(r.shards) == 0 { // Start made none
		return false
	}
	s := &r.shards[ShardOf(id, len(r.shards))]
	return s.here.Load() && s.deliverFast(0, id, envelope)
}

// routing returns the shard's Router.
func (s *shard) routing() *route.Router {
	if s.router == nil {
		config := s.r.set.mail
		config.Name, config.Self, config.TTL = s.name, s.r.self, s.r.leaseTTL()
		s.router = route.New(config, s)
		s.out.Init(transport.Of(s.r.system), s, s.r.names.Process, s.r.payload+wire.Headroom, &s.r.counts.unconfirmed)
	}
	return s.router
}

// item is m as it waits for its way.
func (s *shard) item(m *mail) route.Item {
	it := route.Item{Local: m, Size: actors.Footprint(m.envelope) + len(m.id)}
	if left, ok := wire.PatienceOf(s.r.system, actor.UnwrapEnvelopeSender(m.envelope)); ok {
		it.Until = route.Until(s.Now(), left)
	}
	return it
}

// accept routes a message that this node sends.
func (s *shard) accept(m *mail) {
	r, it := s.routing(), s.item(m)
	switch {
	case s.r.over.Load(): // the Router is shut, or soon
		s.Drop(&it, "the region has ended")
	case s.r.full() && !r.Routable():
		s.Drop(&it, "as much waits on this node as may")
	default:
		r.Accept(it)
	}
}

// full reports whether the buffers of this node have reached their bound.
func (r *Region) full() bool { return r.waiting.Load() >= int64(r.set.total) }

// Deliver implements route.Port.
func (s *shard) Deliver(it *route.Item) {
	m, ok := it.Local.(*mail)
	if !ok {
		var err error
		if m, err = s.open(it.Wire); err != nil {
			s.Refuse(it, wire.ReasonOf(err), wire.Why(err, s.r.self.Address))
			return
		}
	}
	s.handOverLocked(m, it.Custody())
}

// open reads an envelope of another node.
func (s *shard) open(e *wire.Envelope) (*mail, error) {
	if err := ValidateEntityID(e.Key); err != nil {
		return nil, err
	}
	if n := ShardOf(e.Key, s.r.typ.Shards); n != s.number { // it may run there
		return nil, fmt.Errorf("entity id %.64q: %w: it is of shard %d", e.Key, lease.ErrInvalid, n)
	}
	if e.Codec == "" {
		e.Codec = wire.CodecProto
	}
	msg, err := wire.Default.Open(e)
	if err != nil {
		return nil, err
	}
	if wire.OfSystem(msg) {
		return nil, fmt.Errorf("message to %.64q: %w: %T, which only an actor system sends", e.Key, lease.ErrInvalid, msg)
	}
	return &mail{e.Key, wire.Local(msg, e.Sender.PID(), e.Headers)}, nil
}

// sendable reports whether msg may be sent to an entity: it is not nil, and no message that only
// an actor system sends.
func sendable(msg any) bool {
	if e, ok := msg.(*actor.MessageEnvelope); ok {
		return e != nil && e.Message != nil && !wire.OfSystem(e.Message)
	}
	return msg != nil && !wire.OfSystem(msg)
}

// enclose puts a message in an envelope of its own; one that is in an envelope keeps
// its headers.
func enclose(msg any, sender *actor.PID) *actor.MessageEnvelope {
	if e, ok := msg.(*actor.MessageEnvelope); ok {
		return &actor.MessageEnvelope{Header: e.Header, Message: e.Message, Sender: sender}
	}
	return &actor.MessageEnvelope{Message: msg, Sender: sender}
}

// Room implements route.Port.
func (s *shard) Room(address string) bool {
	return address == s.r.self.Address || s.out.Room(address)
}

// Members implements route.Port.
func (s *shard) Members() []*wire.Node {
	if others := s.r.others.Load(); others != nil {
		return *others
	}
	return nil
}

// Send implements route.Port.
func (s *shard) Send(address string, msg proto.Message) {
	if address == s.r.self.Address || address == "" { // without remote there is none
		s.after = append(s.after, func() { s.r.post(msg) })
		return
	}
	link := s.out.Send(address, msg)
	if e, ok := msg.(*wire.Envelope); ok {
		s.asked.Went(s.r.system, e.Sender, address, link)
	}
}

// cutOff: the link to address broke. Asks that went over it get no answer any more, unless they
// have been forwarded.
func (s *shard) cutOff(address string) {
	s.do(func() {
		if s.router == nil {
			return
		}
		if s.router.Holder().GetAddress() == address {
			s.broke, s.brokeAt = address, s.Now()
		}
		s.asked.Broke(s.r.clock, address, s.out.Link(address), s.router.MovedFrom(address))
		s.router.Gone(address)
	})
}

// Keep implements route.Port.
func (s *shard) Keep(address string, it *route.Item, msg proto.Message) bool {
	return s.out.Keep(address, it, msg)
}

// Recall implements route.Port.
func (s *shard) Recall(address string) []*route.Item { return route.ItemsOf(s.out.Recall(address)) }

// Linked implements transport.Owner.
func (s *shard) Linked(address string) {
	s.do(func() {
		if !s.r.over.Load() {
			s.routing().Linked(address)
		}
	})
}

// Returned implements transport.Owner. Mail that the Router does not take back goes to the dead
// letters.
func (s *shard) Returned(address string, kept []any) {
	s.do(func() {
		items := route.ItemsOf(kept)
		if !s.r.over.Load() {
			s.routing().Returned(items)
			return
		}
		for _, it := range items {
			if it.Mail() {
				s.Drop(it, "the next host was not reached")
			}
		}
	})
}

// Held implements transport.Owner.
func (s *shard) Held() *atomic.Int64 { return s.out.Held() }

// Encode implements route.Port.
func (s *shard) Encode(local any) (*wire.Envelope, error) {
	m := local.(*mail)
	return s.encode(m.id, m.envelope)
}

// encode makes an envelope of a message, without token, and in the short form
// without name.
func (s *shard) encode(id string, envelope any) (*wire.Envelope, error) {
	e, err := wire.Default.Envelop(envelope, s.r.payload)
	if err != nil {
		return nil, err
	}
	e.Key = id
	if e.Codec == wire.CodecProto {
		e.Codec = "" // the short form, too
	}
	return e, nil
}

// Now implements route.Port.
func (s *shard) Now() time.Duration { return s.r.elapsed() }

// Wake implements route.Port: of several the earliest counts, and Tick asks again
// for the rest.
func (s *shard) Wake(d time.Duration) {
	now := s.Now()
	s.wake.SetBy(s.r.clock, s.do, now, now+d, s.router.Tick)
}

// Refuse implements route.Port: it gives a message up for good, to the dead letters, and tells a
// sender that waits for a reply.
func (s *shard) Refuse(it *route.Item, reason wire.Reason, detail string) {
	nack, sender, msg := s.nack(it, reason, detail)
	if reason == wire.Reason_REASON_EXPIRED {
		sender = nil // it is about to hear from its context, which is to say so
	}
	s.after = append(s.after, func() { s.r.undeliverable(nack, sender, msg) })
}

// Drop implements route.Port: the message goes to the dead letters, and its sender hears of it.
func (s *shard) Drop(it *route.Item, why string) {
	nack, sender, msg := s.nack(it, wire.Reason_REASON_OVERFLOW, why)
	s.after = append(s.after, func() { s.r.dropped(nack, sender, msg) })
}

// nack tells a sender that its message was not delivered.
func (s *shard) nack(it *route.Item, reason wire.Reason, detail string) (nack *wire.Nack, sender *actor.PID, msg any) {
	nack = &wire.Nack{Reason: reason, Name: s.name, Detail: wire.Text(detail)}
	if e := it.Wire; e != nil {
		nack.Type, nack.Sequence, nack.Key = e.Type, e.Sequence, e.Key
		return nack, e.Sender.PID(), e
	}
	m := it.Local.(*mail)
	_, msg, sender = actor.UnwrapEnvelope(m.envelope)
	nack.Type, nack.Key = wire.TypeName(msg), m.id
	return nack, sender, msg
}

// dropped: a message found a buffer full, or was left at the end.
func (r *Region) dropped(nack *wire.Nack, sender *actor.PID, msg any) {
	r.counts.dropped.Add(1)
	r.metrics.dropped.Add(1)
	r.answer(nack, sender, msg)
}

// undeliverable gives a message up for good. Like dropped, it leaves the sender out of the dead
// letter: protoactor would answer the sender a second time.
func (r *Region) undeliverable(nack *wire.Nack, sender *actor.PID, msg any) {
	r.counts.undeliverable.Add(1)
	r.metrics.undeliverable.Add(1)
	if missed, ok := r.warned.Open(r.clock.Now().Mono); ok {
		r.log.Warn("undeliverable message", zap.String("name", boundary.Cut(nack.Name)), zap.Stringer("reason", hosting.Reason(nack.Reason)),
			zap.String("type", boundary.Cut(nack.Type)), zap.String("detail", nack.Detail), zap.Int("missed", missed))
	}
	r.answer(nack, sender, msg)
}

// answer tells a sender, and the dead letters, that a message was not delivered.
func (r *Region) answer(nack *wire.Nack, sender *actor.PID, msg any) {
	if sender != nil {
		outlet.Tell(r.system, sender, nack)
	}
	if msg != nil {
		outlet.Of(r.system).DeadLetter(r.pid, msg)
	}
}
