package transport

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/routines"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// This file hands what a Peer has queued to remote. Code of users runs within a send: it may
// panic, end its goroutine, or not return.

// maxSpare is the largest queue whose memory is kept for the next burst.
const maxSpare = 1024

// hangAfter is for how long a send may not return before that is told.
const hangAfter = 5 * time.Second

// maxBatches is how many times one Flush comes back to what others queue meanwhile.
const maxBatches = 16

// hang finds out that a send does not return: code of the user's runs within it, and what is
// behind it waits.
type hang struct {
	sends uint64        // begun
	seen  uint64        // of these, when it was looked at
	since time.Duration // when it had become that many
	told  bool
}

// look reports, once, that no send has returned or begun for long.
func (h *hang) look(sending bool, now time.Duration) bool {
	if !sending || h.seen != h.sends {
		h.seen, h.since, h.told = h.sends, now, false
	}
	if h.told || now < h.since+hangAfter {
		return false
	}
	h.told = true
	return true
}

// drainLocked hands what is queued to remote, in order: one goroutine at a time, with
// mu free meanwhile. That is none of the caller's, who may send for others, with much to do
// afterwards: code of the user's may end it.
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
		p.hang.sends++
		p.mu.Unlock()
		ended := routines.Apart(func() error { p.send(batch); return nil })
		p.mu.Lock()
		if ended != nil {
			return // another goroutine sends the rest, and goes on
		}
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

// send sends all. If code of the user's ends the goroutine (runtime.Goexit), another one sends
// the rest, and goes on.
func (p *Peer) send(batch []outgoing) {
	ended := true
	defer func() {
		if ended {
			p.sendOn(batch)
		}
	}()
	for len(batch) > 0 {
		p.sendSome(&batch)
	}
	ended = false
}

func (p *Peer) sendOn(batch []outgoing) { go func() { p.send(batch); p.resume() }() }

// sendSome sends until something panics, and leaves the rest.
func (p *Peer) sendSome(rest *[]outgoing) {
	var o outgoing
	returned := false
	defer func() {
		if !returned {
			p.undone(&o, recover())
		}
	}()
	for len(*rest) > 0 {
		o = (*rest)[0]
		*rest = (*rest)[1:]
		p.node.system.Root.Send(o.to, o.msg)
	}
	returned = true
}

// undone is called when code of the user's that ran within a send did not return: subscribers of
// dead letters, a sender middleware, a logger. r is what it panicked with; nil if it ended the
// goroutine.
func (p *Peer) undone(o *outgoing, r any) {
	if o.lost != nil {
		p.failed(o)
	}
	if r != nil {
		logPanic(p.node.system, "a message was not sent", r)
	}
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
