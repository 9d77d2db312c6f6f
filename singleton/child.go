package singleton

import (
	"context"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/reply"
)

// spawn makes the child, behind a gate of the present term.
func (c *controller) spawn() {
	if !c.term.CheckAlive() {
		c.fire(lost)
		return
	}
	var g *gate.Gate
	g, err := gate.New(gate.Options{
		Term:     c.term,
		Divert:   func(envelope any) { c.post(&diverted{g, envelope}) },
		Internal: func(envelope any) { c.system.DeadLetter.SendUserMessage(c.proxy.self, envelope) },
		OnLost:   func(error) { c.post(&lossNoticed{}) },
		OnDone:   func() { c.post(&childDone{g}) },
		Journal:  c.set.journal,
		Inner:    c.set.mailbox,
	})
	if err != nil {
		c.log.Error("no gate", zap.Error(err))
		c.fire(spawnFailed)
		return
	}
	c.proxy.lives++
	c.crash = nil
	pid, err := c.spawnChild(g, fmt.Sprintf("%d-%d", c.term.Token(), c.proxy.lives))
	if err != nil {
		g.Close()
		c.log.Error("the child could not be made", zap.Error(err))
		c.fire(spawnFailed)
		return
	}
	c.started = c.clock.Now().Mono
	c.proxy.open(g, pid, c.term.Token())
	c.event(Event{Kind: BecameHost, Token: c.term.Token()})
	c.fire(spawned)
	c.proxy.flush()
}

// spawnChild contains a producer that panics.
func (c *controller) spawnChild(g *gate.Gate, name string) (pid *actor.PID, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("its Props panicked: %v", r)
		}
	}()
	return c.ctx.SpawnNamed(g.Props(c.props).Configure(actor.WithSenderMiddleware(reply.Middleware(c.system))), name)
}

// stopChild tells the child to stop and watches that it does.
func (c *controller) stopChild() {
	if c.phase == Stopping {
		c.proxy.gate.Lose(nil) // unless it noticed first, and before the term's own context is done
		c.event(Event{Kind: Lost, Token: c.term.Token(), Reason: context.Cause(c.proxy.gate.Context())})
	}
	c.ctx.Stop(c.proxy.child)
	c.remind(&stillRunning{gate: c.proxy.gate, since: c.clock.Now().Mono, next: firstReminder})
}

// firstReminder is when a child that does not stop is reported first; then at
// intervals that double.
const firstReminder = 5 * time.Second

func (c *controller) remind(r *stillRunning) {
	c.reminder = c.clock.AfterFunc(r.next, func() { c.post(r) })
}

func (c *controller) onStillRunning(r *stillRunning) {
	if c.proxy.gate != r.gate {
		return
	}
	took := c.clock.Now().Mono - r.since
	c.log.Warn("the child does not stop; the lease is not released while it runs",
		zap.Stringer("phase", c.phase), zap.Duration("since", took))
	c.event(Event{Kind: NotStopping, Token: c.proxy.token, After: took})
	c.remind(&stillRunning{gate: r.gate, since: r.since, next: min(2*r.next, time.Hour)})
}

// onChildEnded: the child is gone and all its mail is back.
func (c *controller) onChildEnded() {
	token := c.proxy.token
	overruns := c.proxy.gate.Counters().Overruns
	c.proxy.close()
	halt(c.reminder)
	if c.phase == Active {
		if c.clock.Now().Mono-c.started >= c.set.backoffMax {
			c.backoffs = 0
		}
		c.log.Warn("the child ended by itself", zap.Any("panic", c.crash))
	}
	c.event(Event{Kind: ChildEnded, Token: token, Panic: c.crash, Overruns: int(overruns)})
	c.fire(childEnded)
	c.proxy.flush()
}
