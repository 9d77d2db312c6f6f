package singleton

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/stateful"
	"github.com/holdfast-go/holdfast/lease"
)

// restoreState gives a new child the state that was handed over; on the child's
// goroutine. If that fails the child ends, and the next one starts cold.
func (c *controller) restoreState(a actor.Actor, state []byte, given *handover.States) error {
	c.post(func() { given.Drop() })
	err := stateful.Give(a, state)
	if err == nil {
		return nil
	}
	c.log.Warn("cold start: the state that was handed over was not taken", zap.Error(err))
	c.event(Event{Kind: ColdStart, Reason: err})
	if errors.Is(err, stateful.ErrNot) {
		return nil // it can start as it is
	}
	return err
}

// stopChild tells the child to stop and watches that it does.
func (c *controller) stopChild() {
	g := c.proxy.gate
	c.inv.since = c.clock.Now().Mono
	if c.phase == Stopping {
		c.endAnnouncement()
		c.proxy.Ending(true)
		g.Lose(nil) // unless it noticed first, and before the term's own context is done
		c.event(Event{Kind: Lost, Token: c.term.Token(), Reason: context.Cause(g.Context())})
		c.ctx.Stop(c.proxy.child)
	} else {
		if c.hold.Offer {
			c.asks.Store(askState)
		} else {
			c.asks.Store(askAlone)
		}
		c.notLeft = nil
		c.askToStop()
		c.later(&c.deadline, c.set.stopWithin, func() { c.fire(handover.Overdue) })
	}
	c.remindOfStop()
}

// askToStop tells a child to stop in the way its user chose. Their function may hang: the
// deadline goes on, and a loss is heard of.
func (c *controller) askToStop() {
	if c.set.stopWith == nil {
		c.ctx.Stop(c.proxy.child)
		return
	}
	g := c.proxy.gate
	boundary.Aside(func() (any, error) { return c.set.stopWith(), nil },
		func(msg any, err error) { c.post(func() { c.onStopMade(g, msg, err) }) })
}

func (c *controller) onStopMade(g *gate.Gate, message any, err error) {
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

// ttl is that of the lease, as far as is known: a Keeper writes it into the record.
func (c *controller) ttl() time.Duration {
	if rec := c.proxy.host; c.proxy.known && rec.TTL > 0 {
		return rec.TTL
	}
	return defaultTTL
}

// defaultTTL is taken for that of a lease whose record can't be seen.
const defaultTTL = 10 * time.Second

// firstReminder is when a child that does not stop is reported first; then at
// intervals that double.
const firstReminder = 5 * time.Second

// remind reports, in next and then again and again, what has not ended since then.
func (c *controller) remind(a *actors.Alarm, since, next time.Duration, what string, e Event) {
	c.later(a, next, func() {
		e.After = c.now() - since
		c.log.Warn(what, zap.Stringer("phase", c.phase), zap.Duration("since", e.After))
		c.event(e)
		c.remind(a, since, min(2*next, time.Hour), what, e)
	})
}

// remindOfStop reports a child that was told to stop now.
func (c *controller) remindOfStop() {
	c.remind(&c.reminder, c.now(), firstReminder, "the child does not stop", Event{Kind: NotStopping, Token: c.proxy.token})
}

// onChildEnded: the child is gone and all its mail is back.
func (c *controller) onChildEnded() {
	token := c.proxy.token
	overruns := c.proxy.gate.Overruns()
	lived := c.clock.Now().Mono - c.started
	own := c.phase == Active || c.phase == Inviting
	if c.proxy.gate.Used() || lived >= c.set.backoffMax {
		c.futile, c.rests = 0, 0
	} else if own && (c.crash != nil || c.proxy.Waits()) { // else it may have done its work
		c.futile, c.known.why = c.futile+1, fmt.Sprintf("%.256v", c.crash)
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
	if err := c.notLeft; err != nil {
		c.log.Warn("cold start: the child's state is not handed over", zap.Error(err))
		c.event(Event{Kind: ColdStart, Token: token, Reason: err})
	}
	c.fire(handover.Ended)
	c.giveWay()
}

// What a child that ends is asked for.
const (
	askNothing = iota
	askState   // its state, for the next host
	askAlone   // nothing, as no node takes over
)

// sole is the key of a singleton's state.
const sole = ""

// maxState bounds the state that a child hands over, in bytes. One that is larger than a message
// between nodes may be is found when it is sent.
const maxState = 1 << 20

// leaveState takes the state of a child that has ended, on the child's goroutine.
func (c *controller) leaveState(a actor.Actor, lost bool) {
	asked := c.asks.Load()
	if asked == askNothing {
		return
	}
	var state []byte
	var err error
	if asked == askState && !lost {
		state, err = stateful.Take(a, maxState)
	} else if _, ok := a.(hosting.Stateful); ok {
		if err = errNoSuccessor; asked == askState {
			err = errShutOff
		}
	}
	c.post(func() {
		if err == nil && state != nil {
			err = c.leaves().Put(sole, state)
		}
		c.notLeft = err
	})
}

// leaves is where what is left for the next host is kept.
func (c *controller) leaves() *handover.States {
	if c.leftState == nil {
		c.leftState = handover.NewStates(&handover.Of(c.system).Left)
	}
	return c.leftState
}

// takeLeft empties what was left.
func (c *controller) takeLeft() *handover.States {
	left := c.leftState
	c.asks.Store(askNothing)
	c.leftState, c.notLeft = nil, nil
	return left
}

var (
	errOfferGone   = errors.New("the successor took its offer back")
	errNotRestored = errors.New("the lease went before the child had begun with it")
	errNoSuccessor = errors.New("no node takes over, so it was not asked for its state")
	errShutOff     = errors.New("the child was shut off before it could leave it")
)

// Guarded is what an actor that obeys a lease knows of the lease. The zero Guarded, which Of
// returns for other actors, is that of a lease that is not held (lease.ErrNotHeld). It is a
// lease.Ownership, and safe for concurrent use.
type Guarded struct{ g *gate.Gate }

// ended is the context of what does not run.
var ended = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(lease.ErrNotHeld)
	return ctx
}()

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
