package transport

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// This file hands what a Peer has queued to remote. Code of users runs within a send.

// maxSpare is the largest queue whose memory is kept for the next burst.
const maxSpare = 1024

// maxBatches is how many times one Flush comes back to what others queue meanwhile.
const maxBatches = 16

// drainLocked hands what is queued to remote, in order: one goroutine at a time, with
// mu free meanwhile.
func (p *Peer) drainLocked() {
	if p.draining {
		return // who drains comes to it
	}
	p.draining = true
	for n := 0; ; n++ {
		if n == maxBatches {
			go p.resume() // for a while: the caller sends for others
			return
		}
		if len(p.s.out) == 0 {
			if !p.s.unprobed() {
				break
			}
			p.s.probe(p.node.now())
		}
		batch := p.s.out
		p.s.out, p.spare = p.spare[:0], nil
		p.mu.Unlock()
		for i := range batch {
			p.send(&batch[i])
		}
		p.mu.Lock()
		clear(batch)
		if cap(batch) <= maxSpare {
			p.spare = batch[:0]
		}
	}
	p.draining = false
}

// resume goes on with what drainLocked left.
func (p *Peer) resume() {
	p.mu.Lock()
	p.draining = false
	p.mu.Unlock()
	p.Flush()
}

// send sends one message. What code of users within it panics with is logged.
func (p *Peer) send(o *outgoing) {
	returned := false
	defer func() {
		if !returned {
			p.undone(o, recover())
		}
	}()
	p.node.system.Root.Send(o.to, o.msg)
	returned = true
}

// undone is called when code of users panicked within a send: a sender middleware, or a subscriber
// of dead letters.
func (p *Peer) undone(o *outgoing, r any) {
	if o.lost != nil {
		p.failed(o)
	}
	logPanic(p.node.system, "a message was not sent", r)
}

// failed counts a straight message that may not have been sent, and tells who asked.
func (p *Peer) failed(o *outgoing) {
	p.mu.Lock()
	p.s.failed(o.leg, o.lost)
	p.mu.Unlock()
	system := p.node.system
	var asker wire.Asker
	if e, ok := o.msg.(*wire.Envelope); ok {
		asker, _ = wire.AskerOf(system, e.Sender.GetAddress(), e.Sender.GetId())
	} else {
		from := actor.UnwrapEnvelopeSender(o.msg)
		asker, _ = wire.AskerOf(system, from.GetAddress(), from.GetId())
	}
	if asker != nil {
		asker.Unconfirmed()
	}
}
