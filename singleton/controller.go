package singleton

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

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
// The controller plays both sides of a hand-over, follows the leader, and makes and stops the
// child. Package handover sends the child's state. The proxy connects package route to the gate,
// the network and the dead letters; route decides where mail goes. Package transport carries the
// mail, in a window for each node, and keeps a backlog until the next node has custody of it. The
// host's record has what nodes must agree on: versions and settings.

// controller is the manager's actor: it feeds the machine with events, carries
// its effects out, and routes mail.
type controller struct {
	*Manager
	machine
	proxy proxy

	ctx  actor.Context // of the message being handled
	term lease.Term
	free func() // of the term that was made for a lease without one

	endSign  context.CancelFunc // ends what is announced; nil if nothing is
	signedAs lease.Token        // of the last announcement

	cancelAcq   context.CancelFunc
	waiting     int // number of the present wait
	unwait      func() bool
	failures    int  // failed acquisitions in a row
	unused      bool // the last acquisition was won, and lost before a child had begun
	backoffs    int
	futile      int          // children in a row that failed before their first message
	rests       int          // pauses for it in a row
	pause       actors.Alarm // until this node may host again
	backoff     actors.Alarm // until the child is started again
	reminder    actors.Alarm // of a child that does not stop
	deadline    actors.Alarm // for a child that was told to stop
	lingering   actors.Alarm
	pushed      bool
	lingers     int    // how many messages were left when lingering was set
	arrived     uint64 // as it was then
	quietPeriod actors.Alarm
	nextKnown   bool // when quietPeriod was set
	quietOver   bool
	moved       bool          // this node gave up hosting, so that another node hosts
	movedTo     *wire.Node    // the node it handed over to; nil: not known
	movedAt     time.Duration // when it did
	making      *making
	started     time.Duration // when the child was
	crash       any           // what it last panicked with
	finishing   bool
	left        bool
	unfollow    []func()

	candidates   map[string]candidate // by address
	invites      uint64               // number of the last hand-over; begins at random, so that it differs from an earlier manager's
	inv          invitation
	take         handover.Accepting
	late         *handover.Taking               // of the last hand-over that this node gave up without a word of the host
	introduction actors.Alarm                   // introduces this node again
	introduceAt  time.Duration                  // when that is due
	hostAt       string                         // address of the host that this node introduces itself to
	asks         atomic.Int32                   // what a child that ends is asked for; read on its goroutine
	leftState    *handover.States               // what it left
	notLeft      error                          // why it did not
	given        *handover.States               // what the next child is to begin with
	sendings     map[*handover.Sending]struct{} // states on their way to other nodes

	known      trouble       // without hostless
	hostlessAt time.Duration // since when no host is known; 0: one is

	following bool         // Follow has not returned
	followers int          // calls of Follow that failed
	again     actors.Alarm // until Follow is called again

	leader   lease.Owner
	leads    bool         // this node is the leader
	settling actors.Alarm // until a change counts that has lasted
}

func newController(m *Manager) *controller {
	c := &controller{Manager: m, machine: machine{hold: handover.Machine{Policy: handover.Policy{Yields: m.set.overdue == hosting.ReleaseAfterTTL}}},
		candidates: map[string]candidate{}, invites: rand.Uint64(), sendings: map[*handover.Sending]struct{}{}}
	c.proxy.init(c)
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
	defer c.survive("the manager panicked")
	defer c.proxy.door.reopen()
	defer c.proxy.flush()
	c.proxy.door.shut()
	message, kept := transport.Unwrap(ctx.Message())
	if !wire.Fits(message) {
		c.outlet.DeadLetter(ctx.Self(), message)
		return
	}
	switch msg := message.(type) {
	case *actor.Started:
		c.begin()
	case *actor.Stopping:
		c.abandon(errManagerStopped)
	case *actor.Restarting, *actor.Terminated:
	case *actor.Stopped:
		c.ended()
	case command:
		msg()
	case event: // of the Manager
		c.fire(msg)
		c.introduce(false)
	case *diverted:
		_, mark := msg.envelope.(*flushMark)
		switch {
		case msg.gate != c.proxy.gate: // a former manager's, perhaps: none is lost
			if !mark {
				c.proxy.outbound(msg.envelope)
			}
		case mark:
			c.onChildEnded()
		default:
			c.proxy.Back(route.Item{Local: msg.envelope, Size: actors.Footprint(msg.envelope)})
		}
	case *cameBack:
		c.proxy.Router.Returned(route.ItemsOf(msg.kept))
	case *wire.Candidate:
		c.onCandidate(msg)
	case *wire.Invite:
		c.onInvite(msg)
	case *wire.Offer:
		c.onOffer(msg)
	case *wire.HandedOver:
		c.onHandedOver(msg)
	case *wire.EntityState:
		c.onState(msg)
	default:
		if !c.proxy.Receive(msg, kept) { // users' mail comes by the door
			c.outlet.DeadLetter(ctx.Self(), msg)
		}
	}
	c.publish()
	if c.finishing {
		c.linger()
	}
}

// survive, when it is deferred, logs a panic.
func (c *controller) survive(what string) {
	if r := recover(); r != nil {
		c.log.Error(what, zap.Any("panic", r), zap.Stack("stack"))
	}
}

// begin runs first.
func (c *controller) begin() {
	c.unfollow = append(c.unfollow, c.proxy.door.serve())
	c.try("the lease's OnLost", func() {
		stop := c.lease.OnLost(func(lease.Loss) { c.post(c.lossNoticed) })
		c.unfollow = append(c.unfollow, func() { stop() })
	})
	c.unfollow = append(c.unfollow,
		transport.Of(c.system).Watch(func(address string) { c.post(func() { c.peerLost(address) }) }))
	if !c.owned { // else what owns it stops it
		c.unfollow = append(c.unfollow, actors.AfterShutdown(c.system, func() { c.tell(stop) }))
	}
	if c.dir != nil {
		c.unfollow = append(c.unfollow, c.dir.follow(c.recordName(), func(h hostNoticed) { c.post(func() { c.onHost(&h) }) }))
	}
	if c.set.proxyOnly {
		return
	}
	if c.set.leadership != nil {
		c.follow()
		return
	}
	c.fire(wanted)
}

// recordName is that of the record which names the host.
func (c *controller) recordName() string {
	if c.sign != nil {
		return c.sign.Name()
	}
	return c.lname
}

// fire feeds one event to the machine and carries out its effects.
func (c *controller) fire(e event) {
	was := c.phase
	var effects []effect
	c.machine, effects = c.machine.next(e)
	if c.phase != was {
		c.log.Info("phase", zap.Stringer("from", was), zap.Stringer("to", c.phase), zap.Uint64("token", uint64(c.token())))
		if c.phase == Standby {
			c.introduce(false) // it could not take over before
		}
	}
	for _, f := range effects {
		c.carryOut(f)
	}
	if c.phase == Standby && was != Standby {
		c.forgetState()
		if c.dir != nil {
			clear(c.candidates) // those that are left tell the next host; and this node, when it is that again
		}
	}
}

// carryOut carries out one effect. Slow calls run on other goroutines and post their results.
func (c *controller) carryOut(f effect) {
	switch f {
	case handover.DoAcquire:
		c.acquire(c.lease.Acquire)
	case cancelAcquire:
		c.cancelAcq()
	case waitFree:
		c.waitFree()
	case retryLater:
		c.retryLater(c.set.failingMost)
	case stopWaiting:
		c.stopWaiting()
	case handover.DoOpen:
		c.spawn()
	case hurrySpawn:
		c.hurrySpawn()
	case dropSpawn:
		c.dropSpawn()
	case handover.DoDrain:
		c.proxy.gate.Drain()
		c.proxy.Ending(false) // what comes now waits here, within the buffer's bound
		c.stopChild()
	case handover.DoLose:
		c.stopChild()
	case startBackoff:
		c.later(&c.backoff, actors.Backoff(c.backoffs, c.set.backoffMin, c.set.backoffMax), func() { c.fire(backoffOver) })
		c.backoffs++
	case cancelBackoff:
		c.backoff.Stop()
	case startRest:
		c.rest()
	case handover.ForceStop:
		c.proxy.gate.Lose(ErrOverdue)
		c.ctx.Stop(c.proxy.child)
	case handover.StartYield:
		// After one TTL no node trusts what passed the gate before.
		c.later(&c.deadline, c.ttl(), func() { c.fire(handover.YieldOver) })
	case handover.DoYield:
		c.yield()
	case handover.DoInvite:
		c.invite()
	case handover.AskAgain:
		c.inv.AskAgain(c.port())
	case handover.DropInvite:
		c.callOff()
	case askLater:
		c.settleAfter(askAgain, func() {
			if c.set.leadership != nil && c.leader.Address != c.proxy.Self.Address {
				c.fire(unwanted)
			}
		})
	case handover.DoTransfer:
		c.transfer()
	case handover.DoOffer:
		c.take.Make(c.port())
	case handover.SendOffer:
		c.take.Send(c.port())
	case handover.SendDecline:
		c.take.Decline(c.port())
	case handover.DoAdopt:
		c.adopt()
	case handover.DoRelease:
		if n := len(c.takeLeft().Drop()); n > 0 {
			c.event(Event{Kind: ColdStart, Token: c.token(), Reason: errOfferGone})
		}
		if len(c.given.Drop()) > 0 {
			c.event(Event{Kind: ColdStart, Token: c.token(), Reason: errNotRestored})
		}
		c.endTerm()
		c.async(func() func() {
			err := boundary.Call(func() error { return c.lease.Release(c.life) })
			return func() { c.onReleased(err) }
		})
	case finish:
		c.finishing = true
		c.introduce(true)
		if !c.mayLeave() {
			c.lingerOn()
		}
	}
}

// post runs f in a turn of the actor, unless the actor has ended. Any goroutine may call it.
func (c *controller) post(f func()) { c.proxy.post(command(f)) }

// async runs f on a goroutine of its own, and the function that f returns in a turn of the actor.
func (c *controller) async(f func() func()) { c.ops.Go(func() { c.post(f()) }) }

// later sets an alarm whose function runs in a turn of the actor.
func (c *controller) later(a *actors.Alarm, d time.Duration, f func()) { a.Set(c.clock, c.post, d, f) }

// lossNoticed asks the term, as the loss may be of an earlier one.
func (c *controller) lossNoticed() {
	if c.term != nil && !c.alive() {
		c.fire(handover.Lost)
	}
}

func (c *controller) onReleased(err error) {
	if err != nil {
		c.log.Warn("release not confirmed, left to the keeper or the TTL", zap.Error(err))
	}
	c.event(Event{Kind: Released, Reason: err})
	c.fire(handover.Released)
}

func (c *controller) publish() {
	s := c.proxy.status()
	s.Name, s.Phase = c.name, c.phase
	c.timeTrouble(s)
	if old := c.status.Load(); *old != s {
		c.status.Store(&s)
		c.meter(*old, s)
	}
	c.meterHost()
	c.tellTrouble()
}

// What a manager's actor gets besides mail for the child and messages of other managers (package
// wire); and an event, which is a call of Stop.
type (
	// command runs in a turn of the actor.
	command func()
	// diverted is mail that a gate refused.
	diverted struct {
		gate     *gate.Gate
		envelope any
	}
	// cameBack is mail that was kept for another node, which did not take it.
	cameBack struct{ kept []any }
	// flushMark is posted behind a child's mail when the child is done: when it comes back
	// diverted, so has everything before it.
	flushMark struct{}
)

// hostNoticed: the records name another host, or none.
type hostNoticed struct {
	record lease.Record
	known  bool
	reset  bool // the store's history went back: what was said before does not count
}
