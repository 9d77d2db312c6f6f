package singleton

import (
	"math/rand/v2"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
)

// What calls what in a manager:
//
//	                                              ┌─▶ gate ─▶ child          this node hosts
//	users ──▶ Manager.PID ─▶ controller ─▶ proxy ─┼─▶ transport ─▶ manager   another does
//	                          │       ▲           └─▶ buffer                 no host known, or no room
//	             machine.next ◀       │
//	                          │       │
//	                       effects ───┴── lease, timers, directory (who holds what),
//	                                      links that break, the source of leadership
//
// The controller has the effects carried out by parts, each of which knows those that follow it
// here, and what is above it by a function at most:
//
//   - leaving ends the manager; giving hands the lease over to the next host
//   - child makes and stops the child; states and successor are for what it begins with and leaves
//   - candidates are the nodes that would host; leadership is what the source of leadership says
//   - door and proxy connect package route, which decides where mail goes, to senders, the gate,
//     the network and the dead letters; host is what the records say of the host
//   - tenure has the lease, and waits for it
//   - core has the machine, the turns of the actor, and what Health and Status say
//
// Package handover sends the child's state. Package transport carries the mail, in a window for
// each node, and keeps a backlog until the next node has custody of it.

// controller is the manager's actor: it feeds the machine with events, carries
// its effects out, and routes mail.
type controller struct {
	*core
	port       port
	tenure     *tenure
	host       *host
	proxy      *proxy
	door       *door
	lead       *leadership
	candidates *candidates
	successor  *successor
	states     *states
	child      *child
	giving     *giving
	leaving    *leaving
	unfollow   []func()
}

func newController(m *Manager) *controller {
	c := &controller{}
	core := &core{Manager: m, fire: c.fire}
	core.hold.Yields = m.set.overdue == hosting.ReleaseAfterTTL
	c.core = core
	c.tenure = &tenure{core: core, isFree: c.onFree, announced: c.onAnnounced}
	c.lead = &leadership{core: core}
	c.host = &host{core: core}
	c.proxy = newProxy(core, c.host)
	c.door = newDoor(c.proxy)
	c.candidates = &candidates{core: core, proxy: c.proxy, lead: c.lead, known: map[string]candidate{}}
	c.lead.led = func() { c.candidates.introduce(false) } // a host that can't hear of it otherwise hears it from us
	c.port = port{core, c.proxy}
	c.successor = &successor{port: c.port, tenure: c.tenure}
	c.states = &states{core: core}
	c.child = &child{core: core, tenure: c.tenure, proxy: c.proxy, door: c.door,
		candidates: c.candidates, successor: c.successor, states: c.states}
	c.giving = &giving{port: c.port, tenure: c.tenure, lead: c.lead, candidates: c.candidates,
		states: c.states, child: c.child,
		noticed: c.onHost, number: rand.Uint64(), sendings: map[*handover.Sending]struct{}{}}
	c.leaving = &leaving{core: core, tenure: c.tenure, proxy: c.proxy, candidates: c.candidates,
		giving: c.giving}
	return c
}

// stopFailing is the strategy of a supervisor that stops its children when they fail: the machine
// restarts them. Subscribers hear of it when the child has been stopped: protoactor's own
// strategies publish before, and a subscriber that panics leaves the child suspended.
type stopFailing func(reason any)

// HandleFailure implements actor.SupervisorStrategy.
func (failed stopFailing) HandleFailure(system *actor.ActorSystem, s actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	failed(reason)
	_ = boundary.Contained(func() { s.StopChildren(child) }) // a Stop for an ended child is a dead letter, whose subscribers may panic
	outlet.Of(system).Publish(&actor.SupervisorEvent{Child: child, Reason: reason, Directive: actor.StopDirective})
}

// Receive implements actor.Actor.
func (c *controller) Receive(ctx actor.Context) {
	c.ctx = ctx
	// A restart by protoactor would stop the child behind the machine's back.
	defer boundary.Survive(c.log, "the manager panicked")
	defer c.door.reopen()
	defer c.proxy.flush()
	c.door.shut()
	message, kept := transport.Unwrap(ctx.Message())
	if !wire.Fits(message) {
		c.outlet.DeadLetter(ctx.Self(), message)
		return
	}
	switch msg := message.(type) {
	case *actor.Started:
		c.begin()
	case *actor.Stopping:
		c.child.abandon(errManagerStopped)
	case *actor.Restarting, *actor.Terminated:
	case *actor.Stopped:
		c.ended()
	case command:
		msg()
	case event: // of the Manager
		c.fire(msg)
		c.candidates.introduce(msg == drain)
	case *moveRequest:
		c.giving.request(msg)
	case *diverted:
		if msg.gate == c.proxy.gate {
			c.proxy.Back(route.Item{Local: msg.envelope, Size: actors.Footprint(msg.envelope)})
		} else { // a former manager's, perhaps: none is lost
			c.proxy.outbound(msg.envelope)
		}
	case *cameBack:
		c.proxy.Router.Returned(route.ItemsOf(msg.kept))
	case *wire.Candidate:
		c.onCandidate(msg)
	case *wire.Invite:
		c.successor.onInvite(msg)
	case *wire.Offer:
		c.giving.onOffer(msg)
	case *wire.HandedOver:
		c.successor.onHandedOver(msg)
	case *wire.EntityState:
		c.successor.onState(msg)
	default:
		if !c.proxy.Receive(msg, kept) { // users' mail comes by the door
			c.outlet.DeadLetter(ctx.Self(), msg)
		}
	}
	c.giving.advance()
	c.publish()
	if c.leaving.begun {
		c.leaving.linger()
	}
}

// begin runs first.
func (c *controller) begin() {
	c.unfollow = append(c.unfollow, c.door.serve())
	c.try("the lease's OnLost", func() {
		stop := c.lease.OnLost(func(lease.Loss) { c.post(c.tenure.lossNoticed) })
		c.unfollow = append(c.unfollow, func() { stop() })
	})
	c.unfollow = append(c.unfollow,
		transport.Of(c.system).Watch(func(address string) { c.post(func() { c.peerLost(address) }) }))
	if !c.owned { // else what owns it stops it
		c.unfollow = append(c.unfollow, actors.AfterShutdown(c.system, func() { c.tell(stop) }))
	}
	if c.dir != nil {
		c.unfollow = append(c.unfollow, c.dir.follow(c.recordName(), func(h hostNoticed) { c.post(func() { c.onHost(h) }) }))
	}
	if c.set.proxyOnly {
		return
	}
	c.lead.heedDrain(false)
	if c.set.leadership != nil {
		c.lead.follow()
		return
	}
	if c.set.group != nil {
		c.unfollow = append(c.unfollow, c.set.group.Follow(func(membership.MembersChanged) { c.post(c.candidates.regroup) }))
	}
	c.fire(wanted)
}

// fire feeds one event to the machine and carries out its effects.
func (c *controller) fire(e event) {
	was := c.phase
	var effects []effect
	c.machine, effects = c.machine.next(e)
	if c.phase != was {
		c.log.Info("phase", zap.Stringer("from", was), zap.Stringer("to", c.phase), zap.Uint64("token", uint64(c.tenure.token())))
		if c.phase == Standby {
			c.candidates.introduce(false) // it could not take over before
		}
	}
	for _, f := range effects {
		c.carryOut(f)
	}
	if c.phase == Standby && was != Standby {
		c.successor.forgetState()
		clear(c.candidates.known) // those that are left tell the next host; and this node, when it is that again
	}
}

// carryOut carries out one effect. Slow calls run on other goroutines and post their results.
func (c *controller) carryOut(f effect) {
	switch f {
	case handover.DoAcquire:
		c.tenure.acquire(c.lease.Acquire)
	case cancelAcquire:
		c.tenure.cancelAcq()
	case waitFree:
		c.tenure.waitFree()
	case retryLater:
		c.tenure.retryLater(failingMost)
	case stopWaiting:
		c.tenure.stopWaiting()
	case handover.DoOpen:
		c.child.spawn()
	case hurrySpawn:
		c.child.hurrySpawn()
	case dropSpawn:
		c.child.dropSpawn()
	case handover.DoDrain:
		c.proxy.gate.Drain()
		c.proxy.Ending(false) // what comes now waits here, within the buffer's bound
		c.child.stopChild()
	case handover.DoLose:
		c.child.stopChild()
	case startBackoff:
		c.later(&c.child.backoff, actors.Backoff(c.child.backoffs, c.set.backoffMin, c.set.backoffMax), func() { c.fire(backoffOver) })
		c.child.backoffs++
	case cancelBackoff:
		c.child.backoff.Stop()
	case startRest:
		c.child.rest()
	case handover.ForceStop:
		c.proxy.gate.Lose(ErrOverdue)
		c.ctx.Stop(c.proxy.child)
	case handover.StartYield:
		// After one TTL no node trusts what passed the gate before.
		c.later(&c.child.deadline, c.host.ttl(), func() { c.fire(handover.YieldOver) })
	case handover.DoYield:
		c.tenure.yield()
		c.proxy.Left()
	case handover.DoInvite:
		c.giving.invite()
	case handover.AskAgain:
		c.giving.inv.AskAgain(c.port)
	case handover.DropInvite:
		c.giving.callOff()
	case askLater:
		c.lead.settleAfter(askAgain, func() {
			if c.set.leadership != nil && c.lead.leader.Address != c.proxy.Self.Address {
				c.fire(unwanted)
			}
		})
	case handover.DoTransfer:
		c.giving.transfer()
	case handover.DoOffer:
		c.successor.take.Make(c.port)
	case handover.SendOffer:
		c.successor.take.Send(c.port)
	case handover.SendDecline:
		c.successor.take.Decline(c.port)
	case handover.DoAdopt:
		c.successor.adopt()
	case handover.DoRelease:
		if n := len(c.states.takeLeft().Drop()); n > 0 {
			c.event(Event{Kind: ColdStart, Token: c.tenure.token(), Reason: errOfferGone})
		}
		if len(c.states.given.Drop()) > 0 {
			c.event(Event{Kind: ColdStart, Token: c.tenure.token(), Reason: errNotRestored})
		}
		c.tenure.release()
	case finish:
		c.leaving.begun = true
		c.candidates.introduce(true)
		if !c.leaving.mayLeave() {
			c.leaving.lingerOn()
		}
	}
}

func (c *controller) publish() {
	s := c.proxy.status()
	s.Name, s.Phase, s.WhyNot = c.name, c.phase, c.whyNot()
	c.timeStatus(&s, c.proxy.gate != nil)
	c.timeTrouble(s, c.proxy.gate, c.child.making != nil, c.lead.following)
	c.meterHost(c.proxy.Routable())
	if old, now := c.status.Load(), (snapshot{s, c.known}); *old != now {
		c.status.Store(&now)
		c.meter(old.Status, s)
	}
}

// onFree: the name may be free.
func (c *controller) onFree() {
	if c.phase == Offered {
		c.successor.take.Await(c.port) // free for us: it may have been handed over
	} else {
		c.fire(free)
	}
}

// onCandidate: another node would take over, or would not any more.
func (c *controller) onCandidate(m *wire.Candidate) {
	if m.Name != c.lname || m.From == nil {
		return
	}
	c.candidates.note(m)
	if m.Gone {
		return
	}
	c.candidates.checkPreferred()
	c.child.giveWay()
	if m.Leads {
		c.lead.onRival(lease.Owner{ID: m.Id, Incarnation: m.From.Incarnation, Address: m.From.Address})
	}
}

// onHost notes the host, or that there is none.
func (c *controller) onHost(m hostNoticed) {
	if m.reset {
		c.proxy.Forget(c.proxy.token)
	}
	c.host.setHost(m.record, m.known)
	c.successor.take.Recorded(c.port, m.record, m.known)
	c.candidates.introduce(false)
}

// peerLost: the link to a node broke.
func (c *controller) peerLost(address string) {
	c.proxy.Gone(address)
	if c.host.known && c.host.record.Owner.Address == address {
		c.known.broke, c.known.brokeAt = address, c.clock.Now().Mono
		c.publish() // before the askers say why
	}
	c.asked.Broke(c.clock, address, c.proxy.out.Link(address), c.proxy.MovedFrom(address))
	c.candidates.doubt(address)
	c.successor.take.LinkBroke(c.port, address)
	c.giving.inv.LinkBroke(c.port, address)
	switch {
	case c.phase == Inviting && len(c.giving.inv.asking) > 0 && c.giving.inv.asking[0].node.Address == address:
		c.giving.inv.Off(c.port)
		c.giving.noAnswer("")
	case c.phase == Asking && c.giving.inv.To.GetAddress() == address:
		c.fire(handover.Declined)
	}
}

// onAnnounced: other nodes route by the announcement's token from now on.
func (c *controller) onAnnounced() {
	if c.phase.hosts() && c.proxy.gate != nil && !c.proxy.collecting {
		c.proxy.Reopen(c.tenure.signedAs)
	}
}

// ended runs last, when the children have ended, too.
func (c *controller) ended() {
	for _, f := range c.unfollow {
		c.try("what followed", f)
	}
	c.tenure.stopWaiting()
	for _, a := range []*actors.Alarm{&c.lead.again, &c.lead.settling, &c.candidates.introduction,
		&c.child.backoff, &c.child.pause, &c.child.reminder, &c.child.deadline,
		&c.leaving.lingering, &c.leaving.quietPeriod} {
		a.Stop()
	}
	c.giving.inv.Halt()
	c.child.abandon(errManagerStopped)
	var made *gate.Gate
	if mk := c.child.making; mk != nil {
		mk.reminder.Stop()
		if mk.gate.Stop(); mk.gate.Actor() != nil {
			made = mk.gate
		}
	}
	c.successor.forgetState()
	for x := range c.giving.sendings {
		x.Leave()
	}
	c.states.takeLeft().Drop()
	c.states.given.Drop()
	c.tenure.endTerm()
	c.phase = Closed
	c.giving.advance()
	c.proxy.shut()
	for _, w := range c.door.take() {
		c.door.afterEnd(w.message)
	}
	c.publish()
	c.end(made)
}
