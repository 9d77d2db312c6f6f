package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/reply"
	"github.com/holdfast-go/holdfast/lease"
)

// This file makes the child: aside, as its Props are the user's and may take their time, hang or
// panic.

// makingMost is for how long Props may be at making a child. After that the child is given
// up, and the lease with it, so that another node can host.
const makingMost = 30 * time.Second

// ErrNotMade is the Reason of StartFailed for a child that its Props had not made in time.
var ErrNotMade = errors.New("the child was not made in time: its Props have not returned")

var errManagerStopped = errors.New("the manager's actor was stopped")

// making is a call of Props under way. There is never more than one.
type making struct {
	gate     *gate.Gate
	since    time.Duration
	late     actors.Alarm // until the child is given up
	reminder actors.Alarm
	done     bool // the child has ended already
	dropped  bool // it was given up
}

// child makes the child, and sees to its end.
type child struct {
	*core
	tenure     *tenure
	proxy      *proxy
	door       *door
	candidates *candidates
	successor  *successor
	states     *states

	making   *making
	crash    any           // what it last panicked with
	told     time.Duration // when it was told to stop
	backoffs int
	rests    int          // pauses in a row for children that fail
	pause    actors.Alarm // until this node may host again
	backoff  actors.Alarm // until the child is started again
	reminder actors.Alarm // of a child that does not stop
	deadline actors.Alarm // for a child that was told to stop
}

// spawn has the child made, behind a gate of the present term.
func (c *child) spawn() {
	if !c.tenure.alive() {
		if c.tenure.term != nil {
			c.log.Warn("the lease was lost before its child was made", zap.Error(context.Cause(c.tenure.term.Context())))
		}
		c.fire(handover.Lost)
		return
	}
	var g *gate.Gate
	opts := gate.Options{
		Term:     c.tenure.term,
		Divert:   func(envelope any) { c.door.divert(g, envelope) },
		Internal: func(envelope any) { c.outlet.DeadLetter(c.pid, envelope) },
		OnLost:   func(error) { c.post(c.tenure.lossNoticed) },
		OnDone:   func() { c.post(func() { c.onChildDone(g) }) },
		OnEnd:    c.states.leaveState,
		Journal:  c.set.journal,
	}
	if c.successor.take.States != nil && !c.successor.adopted() {
		c.successor.forgetState()
	}
	if states := c.successor.takeUp(); states.Len() > 0 {
		c.states.given = states
	}
	c.successor.take.Forget()
	if state, ok := c.states.given.Get(sole); ok {
		given := c.states.given
		opts.OnStart = func(a actor.Actor) error { return c.states.restoreState(a, state, given) }
	}
	g, err := gate.New(opts)
	if err != nil {
		c.notMade(err)
		return
	}
	c.proxy.lives++
	c.crash = nil
	mk := &making{gate: g, since: c.now()}
	c.making = mk
	c.later(&mk.late, makingMost, func() { c.fire(unmade) })
	c.remind(&mk.reminder, mk.since, firstReminder, "the child's Props do not return", Event{Kind: NotStarting, Token: g.Token()})
	name := fmt.Sprintf("%s/%d-%d", c.pid.Id, c.tenure.term.Token(), c.proxy.lives)
	boundary.Aside(func() (struct{}, error) {
		return struct{}{}, g.Spawn(c.system, c.pid, name, c.props, actor.WithSenderMiddleware(reply.Middleware(c.system)))
	}, func(_ struct{}, err error) {
		c.post(func() { c.onMade(mk, err) })
		if g.Mode() == gate.Ended { // it was given up, perhaps by a manager that has ended
			g.Stop()
		}
	})
}

// onMade: Props have returned.
func (c *child) onMade(mk *making, err error) {
	if !mk.dropped && !c.tenure.alive() {
		c.fire(handover.Lost)
	}
	c.making = nil
	mk.late.Stop()
	mk.reminder.Stop()
	if mk.dropped {
		c.log.Info("what was to make a child that was given up has returned",
			zap.Duration("after", c.clock.Now().Mono-mk.since), zap.NamedError("with", err))
		c.fire(unstuck)
		c.candidates.introduce(false)
		return
	}
	if mk.gate.Actor() == nil {
		c.notMade(err)
		return
	}
	c.began(mk)
	if c.sign != nil { // whose tokens mail is routed by: those of the lease, if it has any, are others
		c.tenure.announce()
		c.proxy.Open(c.tenure.signedAs)
	} else {
		if t, ok := c.tenure.term.(lease.Continuing); ok && t.Continues() != 0 {
			c.proxy.Host(c.proxy.Self, t.Continues(), true) // mail that was routed by it is right, too
		}
		c.proxy.Open(c.tenure.term.Token())
	}
	c.fire(handover.Opened)
	if err != nil {
		c.log.Error("the child's Props failed when it had begun: it is stopped", zap.Error(err))
		c.crash = err
		mk.gate.Stop()
	}
	c.reap(mk)
	c.candidates.checkPreferred()
}

// began takes up a child that runs.
func (c *child) began(mk *making) {
	pid := mk.gate.Actor()
	c.addChild(pid)
	c.known.started, c.tenure.failures, c.tenure.unused = c.clock.Now().Mono, 0, false
	c.proxy.gate, c.proxy.child, c.proxy.token = mk.gate, pid, c.tenure.term.Token() // it takes mail
	c.event(Event{Kind: BecameHost, Token: c.tenure.term.Token()})
}

// onChildDone: the child has ended; its mail is still to be taken back.
func (c *child) onChildDone(g *gate.Gate) {
	if mk := c.making; mk != nil && mk.gate == g {
		mk.done = true
	}
	c.collect(g)
}

// collect begins to take the backlog of a child that is done.
func (c *child) collect(g *gate.Gate) {
	if g == c.proxy.gate && !c.proxy.collecting {
		c.proxy.collecting = true
		c.proxy.Ending(false)
		g.Flush(func() { c.post(func() { c.onChildEnded(g) }) })
	}
}

// reap takes up that a child has ended before its Props returned.
func (c *child) reap(mk *making) {
	if mk.done {
		c.collect(mk.gate)
	}
}

// addChild makes an actor that was spawned elsewhere a child of this one, which ends after it
// then, however it comes to its end. One that has ended, or is about to, tells or has told
// that it has.
func (c *child) addChild(child *actor.PID) {
	if _, lives := c.system.ProcessRegistry.GetLocal(child.Id); !lives {
		return
	}
	_, _ = c.ctx.SpawnNamed(actor.PropsFromFunc(func(actor.Context) {},
		actor.WithSpawnFunc(func(*actor.ActorSystem, string, *actor.Props, actor.SpawnerContext) (*actor.PID, error) {
			return child, nil
		})), child.Id)
}

// notMade tells that the child could not be made; it is tried again.
func (c *child) notMade(why error) {
	c.log.Error("the child could not be made", zap.Error(why))
	c.event(Event{Kind: StartFailed, Token: c.tenure.token(), Reason: why})
	c.known.futile, c.known.why = c.known.futile+1, fmt.Sprintf("%.256v", why)
	c.fire(spawnFailed)
	c.giveWay()
}

// giveWay has another node try to host a child that fails here time and again, if one would. This
// node goes last then for about a second, then 2, 4 and so on up to a minute, until a child of its
// own works.
func (c *child) giveWay() {
	if c.phase != Backoff || c.known.futile < tries {
		return
	}
	e := hopeless
	if c.transfers() == nil {
		e = resign
	}
	if len(c.candidates.certain()) > 0 || e == resign && c.set.leadership == nil {
		c.log.Warn("the child fails here time and again: another node is to host it", zap.Int("times", c.known.futile), zap.String("why", c.known.why))
		c.fire(e)
	}
}

func (c *child) rest() {
	c.later(&c.pause, actors.Backoff(c.rests, time.Second, time.Minute), func() {
		c.fire(rested)
		c.candidates.introduce(false)
	})
	c.rests++
}

// hurrySpawn gives what is to make the child no longer than a child has for a planned end.
func (c *child) hurrySpawn() {
	mk := c.making
	left := mk.since + makingMost - c.clock.Now().Mono
	c.later(&mk.late, max(0, min(left, c.set.stopWithin)), func() { c.fire(unmade) })
}

// dropSpawn gives a child up that is being made: nothing passes to the child, if there will be one.
func (c *child) dropSpawn() {
	mk := c.making
	if mk == nil { // it was lost before that was begun
		c.fire(unstuck)
		c.fire(handover.Ended)
		return
	}
	why := ErrNotMade
	if !c.tenure.alive() {
		why = cmp.Or(context.Cause(c.tenure.term.Context()), lease.ErrExpired)
	}
	c.abandon(why)
	c.log.Error("the child is given up", zap.Error(why), zap.Duration("after", c.clock.Now().Mono-mk.since))
	c.event(Event{Kind: StartFailed, Token: c.tenure.term.Token(), Reason: why})
	if mk.gate.Actor() == nil { // none runs, nor ever will
		c.fire(handover.Ended)
		return
	}
	mk.gate.Stop()
	// It runs, and something of its Props that was called around that does not return.
	c.began(mk)
	c.remindOfStop()
	c.reap(mk)
}

// abandon shuts what is being made off: it is stopped once it exists.
func (c *child) abandon(why error) {
	if mk := c.making; mk != nil && !mk.dropped {
		mk.dropped = true
		mk.late.Stop()
		mk.gate.Lose(why)
		mk.gate.Close()
	}
}

// stopChild tells the child to stop and watches that it does.
func (c *child) stopChild() {
	g := c.proxy.gate
	c.told = c.now()
	if c.phase == Stopping {
		c.tenure.endAnnouncement()
		c.proxy.Ending(true)
		g.Lose(nil) // unless it noticed first, and before the term's own context is done
		c.event(Event{Kind: Lost, Token: c.tenure.term.Token(), Reason: context.Cause(g.Context())})
		c.ctx.Stop(c.proxy.child)
	} else {
		if c.hold.Offer {
			c.states.asks.Store(askState)
		} else {
			c.states.asks.Store(askAlone)
		}
		c.states.notLeft = nil
		c.askToStop()
		c.later(&c.deadline, c.set.stopWithin, func() { c.fire(handover.Overdue) })
	}
	c.remindOfStop()
}

// askToStop tells a child to stop in the way its user chose. Their function may hang: the
// deadline goes on, and a loss is heard of.
func (c *child) askToStop() {
	if c.set.stopWith == nil {
		c.ctx.Stop(c.proxy.child)
		return
	}
	g := c.proxy.gate
	boundary.Aside(func() (any, error) { return c.set.stopWith(), nil },
		func(msg any, err error) { c.post(func() { c.onStopMade(g, msg, err) }) })
}

func (c *child) onStopMade(g *gate.Gate, message any, err error) {
	switch {
	case g != c.proxy.gate || c.phase != HandingOver || !g.CheckAlive(): // too late: it was stopped otherwise
	case err != nil:
		c.log.Error("WithStop's function failed: the child is stopped at once", zap.Error(err))
		c.ctx.Stop(c.proxy.child)
	case message == nil:
		c.ctx.Stop(c.proxy.child)
	default:
		c.ctx.Send(c.proxy.child, message)
	}
}

// ErrOverdue is the cause of a child's context that did not stop by its deadline
// (WithStop).
var ErrOverdue = errors.New("the child did not stop in time")

// firstReminder is when a child that does not stop is reported first; then at
// intervals that double.
const firstReminder = 5 * time.Second

// remind reports, in next and then again and again, what has not ended since then.
func (c *child) remind(a *actors.Alarm, since, next time.Duration, what string, e Event) {
	c.later(a, next, func() {
		e.After = c.now() - since
		c.log.Warn(what, zap.Stringer("phase", c.phase), zap.Duration("since", e.After))
		c.event(e)
		c.remind(a, since, min(2*next, time.Hour), what, e)
	})
}

// remindOfStop reports a child that was told to stop now.
func (c *child) remindOfStop() {
	c.remind(&c.reminder, c.now(), firstReminder, "the child does not stop", Event{Kind: NotStopping, Token: c.proxy.token})
}

// onChildEnded: the child is gone and all its mail is back.
func (c *child) onChildEnded(g *gate.Gate) {
	if g != c.proxy.gate {
		return
	}
	token := c.proxy.token
	overruns := c.proxy.gate.Overruns()
	lived := c.clock.Now().Mono - c.known.started
	own := c.phase == Active || c.phase == Inviting
	if c.proxy.gate.Used() || lived >= c.set.backoffMax {
		c.known.futile, c.rests = 0, 0
	} else if own && (c.crash != nil || c.proxy.Waits()) { // else it may have done its work
		c.known.futile, c.known.why = c.known.futile+1, fmt.Sprintf("%.256v", c.crash)
	}
	c.proxy.close()
	c.reminder.Stop()
	c.deadline.Stop()
	if overruns > 0 {
		c.metrics.overruns.Add(int64(overruns))
	}
	if own {
		c.metrics.restarts.Add(1)
		if lived >= c.set.backoffMax {
			c.backoffs = 0
		}
		c.log.Warn("the child ended by itself", zap.Any("panic", c.crash))
	}
	c.event(Event{Kind: ChildEnded, Token: token, Panic: c.crash, Overruns: int(overruns)})
	if err := c.states.notLeft; err != nil {
		c.coldStart("cold start: the child's state is not handed over", token, err)
	}
	c.fire(handover.Ended)
	c.giveWay()
}

// Guarded is what an actor that obeys a lease knows of the lease. The zero Guarded, which Of
// returns for other actors, is that of a lease that is not held (lease.ErrNotHeld). It is a
// lease.Ownership, and safe for concurrent use.
type Guarded struct{ g *gate.Gate }

// Of returns the lease that the actor of ctx works under; ok is false if the actor is neither
// a singleton's child nor was spawned with Guard. Call it from the actor's own goroutine;
// the result may be kept and used from anywhere.
func Of(ctx actor.Context) (g Guarded, ok bool) {
	gt, ok := gate.Of(ctx)
	return Guarded{gt}, ok
}

// Context is done when the lease is lost, the manager closes the gate or the
// actor has ended; context.Cause says why. Pass it to everything that blocks.
func (g Guarded) Context() context.Context {
	if g.g == nil {
		return ended
	}
	return g.g.Context()
}

// Name is the lease's name.
func (g Guarded) Name() string {
	if g.g == nil {
		return ""
	}
	return g.g.Name()
}

// Token is the fencing token: pass it to every resource that can check one.
func (g Guarded) Token() lease.Token {
	if g.g == nil {
		return 0
	}
	return g.g.Token()
}

// CheckAlive reports whether work may go on at this moment. A long handler asks
// before each step.
func (g Guarded) CheckAlive() bool { return g.g != nil && g.g.CheckAlive() }

// Guard returns a copy of p for a child of the guarded actor: nothing is
// processed by it once the lease is lost. A mailbox of p is replaced. Under no lease,
// an actor that ends at once takes the place of the child. nil if p is.
func (g Guarded) Guard(p *actor.Props) *actor.Props {
	switch {
	case p == nil:
		return nil
	case g.g == nil:
		return p.Clone(actor.WithFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(*actor.Started); ok {
				ctx.Stop(ctx.Self())
			}
		}))
	}
	return g.g.Guard(p)
}
