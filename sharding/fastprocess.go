package sharding

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/fastpath"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// This file is what other nodes send to by the short way (package fastpath).

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
