// Package fastpath is the short way of mail to the node that hosts a name: past the queue
// of the name's Router. Its callers have made sure that nothing waits there, or is held up.
//
// What it sends is straight mail of internal/transport: it takes room in the window of the
// peer, and finds none where that is full. Protocol Buffers messages travel plainly, as
// they are, to an id that says what a wire.Envelope would:
//
//	holdfast/at/<family>/<token>/<key>
//
// A node says in a record whether it takes these; to any other they go in an Envelope, as
// does all that is no such message. Where anything has to be considered on arrival, an
// Envelope is made of what came plainly.
package fastpath

import (
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/asker"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// Mail is a message that is about to be sent: encoded under no lock, given to a channel under
// that of its name (Sender.Send), and flushed under none.
type Mail struct {
	key      string
	envelope any
	plain    *wire.Encoded
	enclosed *wire.Envelope
	size     int
	parcel   transport.Parcel
}

// Encode makes m a message, or an *actor.MessageEnvelope, for the key's actor of a name;
// enclose makes the Envelope of what does not travel plainly, without name and token.
// false if there is none: that is for the Router to refuse. No payload is longer than limit.
func (m *Mail) Encode(key string, envelope any, limit int, enclose func(key string, envelope any) (*wire.Envelope, error)) (ok bool) {
	m.key, m.envelope = key, envelope
	if m.plain, m.size = plain(envelope, limit); m.plain != nil {
		m.size += len(key)
		return true
	}
	e, err := enclose(key, envelope)
	if err != nil {
		return false
	}
	m.enclosed, m.size = e, e.Footprint()
	return true
}

// Flush sends what Sender.Send has queued; under no lock.
func (m *Mail) Flush() { m.parcel.Flush() }

// plain encodes a message that may travel in no Envelope; nil if it may not. size is what
// it takes with its headers and its sender, in bytes.
func plain(envelope any, limit int) (p *wire.Encoded, size int) {
	p = wire.Default.Plain(actor.UnwrapEnvelopeMessage(envelope), limit)
	if p == nil {
		return nil, 0
	}
	size = len(p.Payload()) + actors.HeaderSize(envelope)
	names := len(p.TypeName()) + len(wire.CodecProto) // where it arrives it may be put in an Envelope
	if size+names > limit+wire.Headroom/2 || wire.CheckText(envelope) != nil {
		return nil, 0
	}
	return p, size
}

// Sender is what all that one node sends to names of a family has in common.
type Sender struct {
	System *actor.ActorSystem
	Family string // of actors.Families
	Codec  string // what Envelopes call that of plain messages; empty for short
	// Takes reports whether the life of a node takes plain messages, if that is known.
	Takes func(incarnation string) (can, known bool)
	// Lost counts what is not known to have arrived when its link broke.
	Lost *atomic.Int64
}

// Path is how mail of one name goes to the node that hosts it. It is guarded by the lock
// that the name's mail passes under.
type Path struct {
	node  string // its incarnation
	token lease.Token
	known bool // whether it takes plain messages
	takes bool
	pids  map[string]*actor.PID // by key
	key   string                // of last
	last  *actor.PID            // often it is wanted again
}

// pidsMost bounds how many keys' PIDs a Path remembers.
const pidsMost = 128

// Send queues m for node, which hosts the name by token; false if there is no room. The
// caller flushes m.
func (s *Sender) Send(p *Path, out *transport.Outbox, asked *asker.InFlight, m *Mail, name string, node *wire.Node, token lease.Token) (ok bool) {
	peer := out.Channel(node.Address)
	pid, msg := (*actor.PID)(nil), any(nil)
	from := actor.UnwrapEnvelopeSender(m.envelope)
	if m.plain != nil {
		if pid = s.pid(p, node, token, m.key); pid != nil {
			msg = encoded(m.envelope, m.plain)
			if left := s.left(from); left > 0 {
				pid = &actor.PID{Address: pid.Address, Id: pid.Id, RequestId: uint32(min(left, math.MaxUint32))}
			}
		}
	}
	if pid == nil {
		e := m.enclosed
		if e == nil {
			e = wire.Enclose(m.envelope, m.plain.TypeName(), s.Codec, m.plain.Payload())
			e.Key = m.key
		}
		e.Name, e.Token, e.Left = name, uint64(token), s.left(from)
		pid, msg = out.PID(node.Address), e
	}
	ok = peer.Straight(&m.parcel, pid, msg, m.size, s.Lost)
	if ok && from != nil {
		asked.Went(s.System, from, node.Address, m.parcel.Link())
	}
	return ok
}

// pid is where the key's actor takes plain messages; nil if it does not.
func (s *Sender) pid(p *Path, node *wire.Node, token lease.Token, key string) *actor.PID {
	if p.token != token || p.node != node.Incarnation {
		*p = Path{node: node.Incarnation, token: token}
	}
	if !p.known {
		p.takes, p.known = s.Takes(node.Incarnation)
	}
	switch {
	case !p.takes:
		return nil
	case p.last != nil && p.key == key:
		return p.last
	}
	pid := p.pids[key]
	if pid == nil {
		if p.pids == nil || len(p.pids) >= pidsMost {
			p.pids = map[string]*actor.PID{}
		}
		pid = actor.NewPID(node.Address, actors.FamilyID(s.Family, strconv.FormatUint(uint64(token), 10)+"/"+key))
		p.pids[key] = pid
	}
	p.key, p.last = key, pid
	return pid
}

// left is for how many milliseconds the asker goes on waiting; 0 if that is not known.
func (s *Sender) left(from *actor.PID) uint64 {
	if from == nil {
		return 0
	}
	left, ok := wire.PatienceOf(s.System, from)
	if !ok {
		return 0
	}
	return uint64(max(1, left/time.Millisecond))
}

// Left returns for how many more milliseconds the asker waits for the answer to a plain message
// that came for pid; 0 if that is not known. It travels as the request id of pid, which no actor
// sees.
func Left(pid *actor.PID) uint64 { return uint64(pid.GetRequestId()) }

// Addressee is the pid that a plain message came for as others may see it, in a dead letter:
// without what Left tells, and at the address of this node, which stands for another thing
// where package remoting has found whom it is for.
func Addressee(system *actor.ActorSystem, pid *actor.PID) *actor.PID {
	return actor.NewPID(system.Address(), pid.Id)
}

// encoded is envelope with what it holds encoded.
func encoded(envelope any, msg *wire.Encoded) any {
	if e, ok := envelope.(*actor.MessageEnvelope); ok {
		return &actor.MessageEnvelope{Header: e.Header, Message: msg, Sender: e.Sender}
	}
	return msg
}

// Split takes the rest of an id apart, as a actors.Resolver gets it; false if it is none.
func Split(rest string) (token lease.Token, key string, ok bool) {
	number, key, _ := strings.Cut(rest, "/")
	t, err := strconv.ParseUint(number, 10, 64)
	return lease.Token(t), key, err == nil
}
