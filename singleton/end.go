package singleton

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// This file is the manager's end.

// noHostPeriod is for how long a manager that other nodes sent mail to goes on forwarding, at
// least, if no node becomes the host. If there is a next host, it does for handover.QuietPeriod
// once others know that (newsWithin).
const noHostPeriod = time.Second

// newsWithin is how long it takes, as a rule, until other nodes know of another host: where the
// store can watch they learn it at once. What is part of something else has no mail of its own.
func (c *controller) newsWithin() time.Duration {
	switch {
	case c.owned:
		return 0
	case c.dir == nil:
		return lookUpEvery
	}
	return c.keeper.LookEvery()
}

// gaveUp notes that this node hosts no more, and to whom that was handed over, if it was.
func (c *controller) gaveUp(to *wire.Node) { c.moved, c.movedTo, c.movedAt = true, to, c.now() }

// justMoved reports whether this node has given up hosting, for another to do so, and not all
// others may know that yet.
func (c *controller) justMoved() bool {
	return c.moved && c.now() < c.movedAt+c.newsWithin()+handover.QuietPeriod
}

// quietFor is for how long this node goes on forwarding from now on, though no mail waits.
func (c *controller) quietFor(next bool) time.Duration {
	if !next { // this node itself may be late to know
		return max(noHostPeriod, c.newsWithin()+handover.QuietPeriod)
	}
	since := c.now()
	if r := c.proxy.host; c.proxy.known && r.Token > c.proxy.Own() && c.proxy.Holder().Is(wire.NodeOf(r.Owner)) { // else it said so itself
		since = c.proxy.learned
		if c.movedTo.Is(wire.NodeOf(c.proxy.host.Owner)) {
			since = min(since, c.movedAt)
		}
	}
	return handover.QuietPeriod + max(0, since+c.newsWithin()-c.now())
}

// linger ends the actor when nothing is left to forward.
func (c *controller) linger() {
	next := c.proxy.Elsewhere()
	switch {
	case c.mayLeave():
		c.leave()
	case !c.quietOver && (!c.quietPeriod.Pending() || next && !c.nextKnown):
		c.nextKnown = next
		c.later(&c.quietPeriod, c.quietFor(next), func() { c.quietOver = true })
	}
}

// lingerOn waits for half of WithLinger for progress; for less, if no next host is known.
func (c *controller) lingerOn() {
	c.lingers, c.arrived = c.remaining(), c.arrivals()
	d := c.set.linger / 2
	if c.last() {
		d = min(d, noHostPeriod/2)
	}
	c.later(&c.lingering, d, c.onLingerEnded)
}

// last reports whether this node hosted and no other node would take over, as far as is
// known: each candidate says so to the host, and has been asked.
func (c *controller) last() bool {
	_, can := lease.As[lease.TransferLease](c.lease)
	return can && c.proxy.lives > 0 && !c.justMoved() && len(c.certain()) == 0 && !c.proxy.Elsewhere()
}

// onLingerEnded goes on while the next host takes mail. Where it does not, it is handed
// what is left, though it is not open; then the actor ends.
func (c *controller) onLingerEnded() {
	switch {
	case c.remaining() < c.lingers, c.arrivals() != c.arrived:
		c.lingerOn()
	case !c.pushed:
		c.pushed = true
		c.proxy.Push()
		c.lingerOn()
	default:
		c.leave()
	}
}

// mayLeave: nothing waits, and no other node sends mail here, or all nodes had time to learn of
// the next host.
func (c *controller) mayLeave() bool {
	return c.proxy.Idle() && c.proxy.Held().Load() == 0 && c.handing() == 0 && (c.quietOver || !c.soughtHere())
}

// soughtHere reports whether other nodes may send mail here: they did; or this node hosted,
// another does now or would, and others are late to know.
func (c *controller) soughtHere() bool {
	return c.proxy.Served() || c.proxy.lives > 0 && c.newsWithin() > 0 &&
		(c.justMoved() || c.proxy.Elsewhere() || len(c.certain()) > 0)
}

// remaining counts what waits to be taken up by the next host.
func (c *controller) remaining() int { return c.proxy.status().Buffered + c.handing() }

// arrivals counts what arrives where mail of this manager waits for room.
func (c *controller) arrivals() uint64 {
	return transport.Of(c.system).Arrived(func(o transport.Owner) bool { return o == transport.Owner(&c.proxy) })
}

// leave ends the actor.
func (c *controller) leave() {
	if !c.left {
		c.left = true
		c.ctx.Stop(c.ctx.Self())
	}
}

// ended runs last, when the children have ended, too.
func (c *controller) ended() {
	for _, f := range c.unfollow {
		c.try("what followed", f)
	}
	c.stopWaiting()
	for _, a := range []*actors.Alarm{&c.again, &c.backoff, &c.pause, &c.reminder, &c.lingering, &c.deadline, &c.settling, &c.introduction, &c.quietPeriod} {
		a.Stop()
	}
	c.inv.Halt()
	c.abandon(errManagerStopped)
	var made *gate.Gate
	if mk := c.making; mk != nil {
		mk.reminder.Stop()
		if mk.stop() {
			made = mk.gate
		}
	}
	c.forgetState()
	for x := range c.sendings {
		x.Leave()
	}
	c.takeLeft().Drop()
	c.given.Drop()
	c.endTerm()
	c.phase = Closed
	c.proxy.shut()
	c.publish()
	go func() {
		if made != nil {
			<-made.Done() // it runs, and this actor did not know it
		}
		c.cleanUp()
	}()
}
