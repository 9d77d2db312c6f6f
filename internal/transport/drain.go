package transport

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// This file hands what a Peer has queued to remote.

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

// send sends one message. A sender middleware, or a subscriber of dead letters, may panic within:
// the message may not have been sent, and the channel goes on with those behind it.
func (p *Peer) send(o *outgoing) {
	defer func() {
		if r := recover(); r != nil {
			p.unsent(o, r)
		}
	}()
	p.node.system.Root.Send(o.to, o.msg)
}

// unsent counts a straight message that may not have been sent, and tells its asker: without a
// deadline that would wait for ever.
func (p *Peer) unsent(o *outgoing, reason any) {
	if o.lost != nil {
		o.lost.Add(1)
		from := actor.UnwrapEnvelopeSender(o.msg)
		if e, ok := o.msg.(*wire.Envelope); ok {
			from = e.Sender.PID()
		}
		if asker, _ := wire.AskerOf(p.node.system, from.GetAddress(), from.GetId()); asker != nil {
			asker.Unconfirmed()
		}
	}
	p.node.log("a message was not sent", reason)
}
