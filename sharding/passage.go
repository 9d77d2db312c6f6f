package sharding

import (
	"strconv"
	"strings"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/direct"
	"github.com/holdfast-go/holdfast/internal/outside"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// This file is the short way of Protocol Buffers messages between nodes. They travel
// as they are, in no wire.Envelope, to an id that says what the Envelope would:
//
//	holdfast/at/<group>/<type>/<token>/<entity>
//
// Where anything is to be considered on arrival, an Envelope is made of them there.

// way is how mail for a shard's entities goes to the node that hosts it.
type way struct {
	node   string // its incarnation
	token  lease.Token
	known  bool // whether it takes the short way
	direct bool
	pids   map[string]*actor.PID // by entity
}

// wayPIDs bounds how many entities' PIDs a shard remembers.
const wayPIDs = 128

// to returns where the entity id is reached by the short way; nil if not at all.
func (w *way) to(s *shard, node *wire.Node, token lease.Token, id string) *actor.PID {
	if w.token != token || w.node != node.Incarnation {
		*w = way{node: node.Incarnation, token: token}
	}
	if !w.known {
		w.direct, w.known = s.r.table.direct(node.Incarnation)
	}
	if !w.direct {
		return nil
	}
	pid := w.pids[id]
	if pid == nil {
		if w.pids == nil || len(w.pids) >= wayPIDs {
			w.pids = map[string]*actor.PID{}
		}
		pid = actor.NewPID(node.Address, direct.ID(s.r.names.key, strconv.FormatUint(uint64(token), 10)+"/"+id))
		w.pids[id] = pid
	}
	return pid
}

// plainly is envelope with what it holds encoded.
func plainly(envelope any, msg *wire.Encoded) any {
	if e, ok := envelope.(*actor.MessageEnvelope); ok {
		return &actor.MessageEnvelope{Header: e.Header, Message: msg, Sender: e.Sender}
	}
	return msg
}

// resolve returns the process that stands for an id of the short way.
func (r *Region) resolve(rest string) (actor.Process, bool) {
	token, id, _ := strings.Cut(rest, "/")
	t, err := strconv.ParseUint(token, 10, 64)
	if err != nil || ValidateEntityID(id) != nil {
		return nil, false
	}
	return &passage{noActor{r}, &r.shards[ShardOf(id, r.typ.Shards)], lease.Token(t), id}, true
}

// passage is what other nodes send to by the short way.
type passage struct {
	noActor
	s     *shard
	token lease.Token
	id    string
}

// SendUserMessage implements actor.Process. It runs on the goroutine that read the
// message from a link.
func (p *passage) SendUserMessage(pid *actor.PID, message any) {
	s := p.s
	if s.r.over.Load() || !sendable(message) {
		outside.Of(s.r.system).DeadLetter(pid, message)
		return
	}
	s.touched()
	if s.here.Load() && s.come(p.token, p.id, message) {
		return
	}
	e, err := s.encode(p.id, message)
	if err != nil { // it came as a message that can be encoded
		outside.Of(s.r.system).DeadLetter(pid, message)
		return
	}
	e.Name, e.Token = s.name, uint64(p.token)
	s.receive(e, false)
}
