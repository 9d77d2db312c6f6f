package sharding

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/fastpath"
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
