package singleton

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/stateful"
)

// restoreState gives a new child the state that was handed over; on the child's
// goroutine. If that fails the child ends, and the next one starts cold.
func (c *controller) restoreState(a actor.Actor) error {
	state, ok := c.states.takeGiven()
	if !ok {
		return nil
	}
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
			c.states.ask()
		} else {
			c.states.forgo()
		}
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
	c.proxy.close()
	c.reminder.Stop()
	c.deadline.Stop()
	own := c.phase == Active || c.phase == Inviting
	if overruns > 0 {
		c.metrics.overruns.Add(int64(overruns))
	}
	if own {
		c.metrics.restarts.Add(1)
		if c.clock.Now().Mono-c.started >= c.set.backoffMax {
			c.backoffs = 0
		}
		c.log.Warn("the child ended by itself", zap.Any("panic", c.crash))
	}
	c.event(Event{Kind: ChildEnded, Token: token, Panic: c.crash, Overruns: int(overruns)})
	if err := c.states.failure(); err != nil {
		c.log.Warn("cold start: the child's state is not handed over", zap.Error(err))
		c.event(Event{Kind: ColdStart, Token: token, Reason: err})
	}
	if !own && c.hold.Offer {
		if err := c.states.passOn(); err != nil {
			c.event(Event{Kind: ColdStart, Token: token, Reason: err})
		}
	}
	c.fire(handover.Ended)
}

// handoverState is the state of a child on its way out of this node or into it. It is
// written on the child's goroutine and by the controller.
type handoverState struct {
	budget *handover.Budget

	mu    sync.Mutex
	want  bool             // the child that ends is to leave its state
	alone bool             // it is to end, and no node is there to leave its state to
	left  *handover.States // what it left
	given *handover.States // what the next one is to begin with
	err   error
}

// maxState bounds the state that a child hands over, in bytes. One that is larger than a message
// between nodes may be is found when it is sent.
const maxState = 1 << 20

// sole is the key of a singleton's state.
const sole = ""

// ask asks the child that is about to end for its state.
func (b *handoverState) ask() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.want, b.err = true, nil
}

// forgo says that no node takes over from the child that is about to end.
func (b *handoverState) forgo() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alone, b.err = true, nil
}

// leave takes the state of a child that has ended.
func (b *handoverState) leave(a actor.Actor, lost bool) {
	b.mu.Lock()
	want, alone := b.want, b.alone
	b.mu.Unlock()
	if !want && !alone {
		return
	}
	var state []byte
	var err error
	if want && !lost {
		state, err = stateful.Take(a, maxState)
	} else if _, ok := a.(hosting.Stateful); ok {
		if err = errNoSuccessor; want {
			err = errShutOff
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil && state != nil {
		b.left = handover.NewStates(b.budget)
		err = b.left.Put(sole, state)
	}
	b.err = err
}

// take empties what was left.
func (b *handoverState) take() *handover.States {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.left
	b.want, b.alone, b.left, b.err = false, false, nil, nil
	return left
}

// give keeps what was handed over for the next child.
func (b *handoverState) give(s *handover.States) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.given = s
}

// hasGiven reports whether there is a state for the next child.
func (b *handoverState) hasGiven() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.given.Len() > 0
}

// takeGiven takes the state for the next child out.
func (b *handoverState) takeGiven() (state []byte, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.given.Take(sole)
}

// passOn leaves a state that the child was not given.
func (b *handoverState) passOn() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.given.Len() == 0 {
		return nil
	}
	if b.left == nil {
		b.left = handover.NewStates(b.budget)
	}
	if lost := b.left.Absorb(b.given); len(lost) > 0 {
		return handover.ErrBudget
	}
	return nil
}

// failure says why a child that was to leave its state did not.
func (b *handoverState) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

var (
	errOfferGone   = errors.New("the successor took its offer back")
	errNotRestored = errors.New("the lease went before the child had begun with it")
	errNoSuccessor = errors.New("no node takes over, so it was not asked for its state")
	errShutOff     = errors.New("the child was shut off before it could leave it")
)
