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

// spawn has the child made, behind a gate of the present term.
func (c *controller) spawn() {
	if !c.alive() {
		if c.term != nil {
			c.log.Warn("the lease was lost before its child was made", zap.Error(context.Cause(c.term.Context())))
		}
		c.fire(handover.Lost)
		return
	}
	var g *gate.Gate
	opts := gate.Options{
		Term:     c.term,
		Divert:   func(envelope any) { c.proxy.divert(g, envelope) },
		Internal: func(envelope any) { c.outlet.DeadLetter(c.pid, envelope) },
		OnLost:   func(error) { c.post(c.lossNoticed) },
		OnDone:   func() { c.post(func() { c.onChildDone(g) }) },
		OnEnd:    c.leaveState,
		Journal:  c.set.journal,
	}
	if c.take.States != nil && !c.adopted() {
		c.forgetState()
	}
	if states := c.takeUp(); states.Len() > 0 {
		c.given = states
	}
	c.take.Forget()
	if state, ok := c.given.Get(sole); ok {
		given := c.given
		opts.OnStart = func(a actor.Actor) error { return c.restoreState(a, state, given) }
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
	name := fmt.Sprintf("%s/%d-%d", c.pid.Id, c.term.Token(), c.proxy.lives)
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
func (c *controller) onMade(mk *making, err error) {
	if !mk.dropped && !c.alive() {
		c.fire(handover.Lost)
	}
	c.making = nil
	mk.late.Stop()
	mk.reminder.Stop()
	if mk.dropped {
		c.log.Info("what was to make a child that was given up has returned",
			zap.Duration("after", c.clock.Now().Mono-mk.since), zap.NamedError("with", err))
		c.fire(unstuck)
		c.introduce(false)
		return
	}
	if mk.gate.Actor() == nil {
		c.notMade(err)
		return
	}
	c.began(mk)
	if c.sign != nil { // whose tokens mail is routed by: those of the lease, if it has any, are others
		c.announce()
		c.proxy.Open(c.signedAs)
	} else {
		if t, ok := c.term.(lease.Continuing); ok && t.Continues() != 0 {
			c.proxy.Host(c.proxy.Self, t.Continues(), true) // mail that was routed by it is right, too
		}
		c.proxy.Open(c.term.Token())
	}
	c.fire(handover.Opened)
	if err != nil {
		c.log.Error("the child's Props failed when it had begun: it is stopped", zap.Error(err))
		c.crash = err
		mk.gate.Stop()
	}
	c.reap(mk)
	c.checkPreferred()
}

// began takes up a child that runs.
func (c *controller) began(mk *making) {
	pid := mk.gate.Actor()
	c.addChild(pid)
	c.started, c.failures, c.unused = c.clock.Now().Mono, 0, false
	c.proxy.gate, c.proxy.child, c.proxy.token = mk.gate, pid, c.term.Token() // it takes mail
	c.event(Event{Kind: BecameHost, Token: c.term.Token()})
}

// onChildDone: the child has ended; its mail is still to be taken back.
func (c *controller) onChildDone(g *gate.Gate) {
	if mk := c.making; mk != nil && mk.gate == g {
		mk.done = true
	}
	c.proxy.collect(g)
}

// reap takes up that a child has ended before its Props returned.
func (c *controller) reap(mk *making) {
	if mk.done {
		c.proxy.collect(mk.gate)
	}
}

// addChild makes an actor that was spawned elsewhere a child of this one, which ends after it
// then, however it comes to its end. One that has ended, or is about to, tells or has told
// that it has.
func (c *controller) addChild(child *actor.PID) {
	if _, lives := c.system.ProcessRegistry.GetLocal(child.Id); !lives {
		return
	}
	_, _ = c.ctx.SpawnNamed(actor.PropsFromFunc(func(actor.Context) {},
		actor.WithSpawnFunc(func(*actor.ActorSystem, string, *actor.Props, actor.SpawnerContext) (*actor.PID, error) {
			return child, nil
		})), child.Id)
}

// notMade tells that the child could not be made; it is tried again.
func (c *controller) notMade(why error) {
	c.log.Error("the child could not be made", zap.Error(why))
	c.event(Event{Kind: StartFailed, Token: c.token(), Reason: why})
	c.futile, c.known.why = c.futile+1, fmt.Sprintf("%.256v", why)
	c.fire(spawnFailed)
	c.giveWay()
}

// tries is how many children in a row fail before their first message until another node is to try.
const tries = 3

// giveWay has another node try to host a child that fails here time and again, if one would. This
// node goes last then for about a second, then 2, 4 and so on up to a minute, until a child of its
// own works.
func (c *controller) giveWay() {
	if c.phase != Backoff || c.futile < tries {
		return
	}
	e := hopeless
	if _, can := lease.As[lease.TransferLease](c.lease); !can {
		e = resign
	}
	if len(c.certain()) > 0 || e == resign && c.set.leadership == nil {
		c.log.Warn("the child fails here time and again: another node is to host it", zap.Int("times", c.futile), zap.String("why", c.known.why))
		c.fire(e)
	}
}

func (c *controller) rest() {
	c.later(&c.pause, actors.Backoff(c.rests, time.Second, time.Minute), func() {
		c.fire(rested)
		c.introduce(false)
	})
	c.rests++
}

// hurrySpawn gives what is to make the child no longer than a child has for a planned end.
func (c *controller) hurrySpawn() {
	mk := c.making
	left := mk.since + makingMost - c.clock.Now().Mono
	c.later(&mk.late, max(0, min(left, c.set.stopWithin)), func() { c.fire(unmade) })
}

// dropSpawn gives a child up that is being made: nothing passes to the child, if there will be one.
func (c *controller) dropSpawn() {
	mk := c.making
	if mk == nil { // it was lost before that was begun
		c.fire(unstuck)
		c.fire(handover.Ended)
		return
	}
	why := ErrNotMade
	if !c.alive() {
		why = cmp.Or(context.Cause(c.term.Context()), lease.ErrExpired)
	}
	c.abandon(why)
	c.log.Error("the child is given up", zap.Error(why), zap.Duration("after", c.clock.Now().Mono-mk.since))
	c.event(Event{Kind: StartFailed, Token: c.term.Token(), Reason: why})
	if !mk.stop() {
		c.fire(handover.Ended)
		return
	}
	// It runs, and something of its Props that was called around that does not return.
	c.began(mk)
	c.remindOfStop()
	c.reap(mk)
}

// stop stops what was given up and runs already, or was about to; false if nothing does,
// nor ever will.
func (mk *making) stop() bool {
	if mk.gate.Actor() == nil {
		return false
	}
	mk.gate.Stop()
	return true
}

// abandon shuts what is being made off: it is stopped once it exists.
func (c *controller) abandon(why error) {
	if mk := c.making; mk != nil && !mk.dropped {
		mk.dropped = true
		mk.late.Stop()
		mk.gate.Lose(why)
		mk.gate.Close()
	}
}
