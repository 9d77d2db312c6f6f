package singleton

import (
	"context"
	"errors"
	mrand "math/rand/v2"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// controller is the manager's actor: it feeds the machine with events, carries
// its effects out, and routes mail.
type controller struct {
	*Manager
	machine
	proxy proxy

	ctx  actor.Context // of the message being handled
	term lease.Term
	free func() // of the term that was made for a lease without one

	cancelAcq context.CancelFunc
	waiting   int // number of the present wait; what an earlier one tells is stale
	unwait    func() bool
	failures  int // acquisitions that failed in a row
	backoffs  int
	backoff   lease.Timer
	reminder  lease.Timer
	lingering lease.Timer
	glow      lease.Timer
	nextKnown bool // when glow was set
	glown     bool
	started   time.Duration // when the child was
	crash     any           // what it last panicked with
	finishing bool
	left      bool
	unfollow  []func()
}

func newController(m *Manager) *controller {
	c := &controller{Manager: m, machine: machine{terminal: m.set.terminal}}
	c.proxy.init(m)
	return c
}

// supervisor stops a child that panics: starting it anew is the machine's
// business.
func (c *controller) supervisor() actor.SupervisorStrategy {
	return actor.NewOneForOneStrategy(0, 0, func(reason any) actor.Directive {
		c.crash = reason
		return actor.StopDirective
	})
}

// Receive implements actor.Actor.
func (c *controller) Receive(ctx actor.Context) {
	c.ctx = ctx
	// A restart by protoactor would stop the child behind the machine's back.
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("the manager panicked", zap.Any("panic", r), zap.Stack("stack"))
		}
	}()
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		c.begin()
	case *actor.Stopping, *actor.Restarting, *actor.Terminated:
	case *actor.Stopped:
		c.ended()
	case *acquired:
		c.onAcquired(msg)
	case *lossNoticed:
		if c.term != nil && !c.term.CheckAlive() {
			c.fire(lost)
		}
	case *freeNoticed:
		if msg.number == c.waiting {
			c.fire(free)
		}
	case *backoffEnded:
		if msg.number == c.backoffs {
			c.fire(backoffOver)
		}
	case *releaseEnded:
		if msg.err != nil {
			c.log.Warn("release not confirmed, left to the keeper or the TTL", zap.Error(msg.err))
		}
		c.fire(released)
	case *childDone:
		c.proxy.collect(msg.gate)
	case *diverted:
		_, mark := msg.envelope.(*flushMark)
		switch {
		case msg.gate != c.proxy.gate: // none is expected, and none is lost
			c.proxy.outbound(msg.envelope)
		case mark:
			c.onChildEnded()
		default:
			c.proxy.back(msg.envelope)
		}
	case *stillRunning:
		c.onStillRunning(msg)
	case *holderFound:
		c.proxy.found(msg)
	case *holderStale:
		c.proxy.stale()
	case *hostNoticed:
		c.proxy.setHost(msg.record, msg.known)
	case *leaderNoticed:
		if msg.IsSelf {
			c.fire(wanted)
		} else {
			c.fire(unwanted)
		}
	case *glowEnded:
		c.glown = true
	case *lingerEnded:
		c.leave()
	case *stopRequest:
		c.fire(stop)
	case *resumeRequest:
		c.fire(resume)
	case *wire.Envelope:
		c.proxy.inbound(msg)
	default:
		c.proxy.outbound(envelopeOf(ctx))
	}
	c.publish()
	if c.finishing {
		c.linger()
	}
}

// A manager that other nodes sent mail to goes on forwarding for afterglow once it
// knows the next host, as they may not know it yet; for lastGlow if nobody
// becomes the host.
const (
	afterglow = 300 * time.Millisecond
	lastGlow  = time.Second
)

// linger ends the actor when nothing is left to forward.
func (c *controller) linger() {
	next := c.proxy.remote()
	switch {
	case c.mayLeave():
		c.leave()
	case c.glow == nil, next && !c.nextKnown:
		halt(c.glow)
		d := lastGlow
		if next {
			d = afterglow
		}
		c.nextKnown = next
		c.glow = c.clock.AfterFunc(d, func() { c.post(&glowEnded{}) })
	}
}

// mayLeave: nothing waits, and nobody else sent mail here, or they all had time
// to learn where it goes now.
func (c *controller) mayLeave() bool {
	return c.proxy.buffer.len() == 0 && (!c.proxy.served || c.glown)
}

// leave ends the actor.
func (c *controller) leave() {
	if !c.left {
		c.left = true
		c.ctx.Stop(c.ctx.Self())
	}
}

// begin runs first.
func (c *controller) begin() {
	c.proxy.self = c.ctx.Self()
	stop := c.lease.OnLost(func(lease.Loss) { c.post(&lossNoticed{}) })
	c.unfollow = append(c.unfollow, func() { stop() })
	if c.dir != nil {
		c.unfollow = append(c.unfollow, c.dir.follow(c.lname, func(r lease.Record, ok bool) { c.post(&hostNoticed{r, ok}) }))
	}
	if c.set.proxyOnly {
		return
	}
	if l := c.set.leadership; l != nil {
		c.unfollow = append(c.unfollow, l.Follow(func(ch leaderChanged) { c.post(&leaderNoticed{ch}) }))
		return
	}
	c.fire(wanted)
}

// fire feeds one event to the machine and carries out what comes of it.
func (c *controller) fire(e event) {
	was := c.phase
	var effects []effect
	c.machine, effects = c.machine.next(e)
	if c.phase != was {
		c.log.Info("phase", zap.Stringer("from", was), zap.Stringer("to", c.phase), zap.Uint64("token", uint64(c.token())))
	}
	for _, f := range effects {
		c.carryOut(f)
	}
}

func (c *controller) token() lease.Token {
	if c.term == nil {
		return 0
	}
	return c.term.Token()
}

// carryOut does one effect. What takes time runs elsewhere and tells later.
func (c *controller) carryOut(f effect) {
	switch f {
	case doAcquire:
		ctx, cancel := context.WithCancel(c.life)
		c.cancelAcq = cancel
		c.async(func() any {
			defer cancel()
			ok, err := c.lease.Acquire(ctx)
			return &acquired{ok, err}
		})
	case cancelAcquire:
		c.cancelAcq()
	case waitFree:
		c.waitFree()
	case retryLater:
		c.retryLater(failingMost)
	case stopWaiting:
		c.stopWaiting()
	case doSpawn:
		c.spawn()
	case drainChild:
		c.proxy.gate.Drain()
	case stopChild:
		c.stopChild()
	case startBackoff:
		c.startBackoff()
	case cancelBackoff:
		c.backoffs++
		halt(c.backoff)
	case doRelease:
		c.endTerm()
		c.async(func() any { return &releaseEnded{c.lease.Release(c.life)} })
	case finish:
		c.finishing = true
		if !c.mayLeave() {
			c.lingering = c.clock.AfterFunc(c.set.linger, func() { c.post(&lingerEnded{}) })
		}
	}
}

// post sends to the actor from anywhere. (Manager.pid is set by Start, which
// may not have returned yet.)
func (c *controller) post(msg any) { c.system.Root.Send(c.proxy.self, msg) }

// async runs f elsewhere and tells its result.
func (c *controller) async(f func() any) {
	c.ops.Go(func() { c.post(f()) })
}

func (c *controller) onAcquired(msg *acquired) {
	switch {
	case msg.won:
		c.failures = 0
		// A loss may have been told before this result was: spawn asks the term
		// itself whether it still is what it was.
		c.term, c.free = lease.TermOf(c.lease)
		c.fire(won)
	case msg.err != nil:
		if !errors.Is(msg.err, context.Canceled) {
			c.log.Warn("acquiring failed", zap.Error(msg.err))
		}
		c.fire(failed)
	default:
		c.fire(notWon)
	}
}

// endTerm forgets the term; nothing runs under it any more.
func (c *controller) endTerm() {
	if c.term != nil {
		c.free()
		c.term, c.free = nil, nil
		c.proxy.token = 0
	}
}

// waitFree is told by the lease when the name may be free, or tries again.
func (c *controller) waitFree() {
	w, ok := lease.As[lease.Waiter](c.lease)
	if !ok {
		c.retryLater(pollMost) // tries again where others would be told
		return
	}
	c.stopWaiting()
	n := c.waiting
	c.unwait = w.OnFree(func() { c.post(&freeNoticed{n}) })
}

// What the pauses between acquisitions grow to: where the store failed, and may
// be back any moment; and where nobody tells that the name is free.
const (
	failingMost = time.Second
	pollMost    = 10 * time.Second
)

func (c *controller) retryLater(most time.Duration) {
	c.stopWaiting()
	n := c.waiting
	t := c.clock.AfterFunc(pause(c.failures, min(c.set.backoffMin, most), most), func() { c.post(&freeNoticed{n}) })
	c.failures++
	c.unwait = t.Stop
}

func (c *controller) stopWaiting() {
	c.waiting++
	if c.unwait != nil {
		c.unwait()
		c.unwait = nil
	}
}

// pause is the jittered exponential backoff after n tries.
func pause(n int, least, most time.Duration) time.Duration {
	d := most
	if n < 30 && least<<n < d {
		d = least << n
	}
	return d/2 + time.Duration(mrand.Int64N(int64(d/2)+1))
}

func (c *controller) startBackoff() {
	d := pause(c.backoffs, c.set.backoffMin, c.set.backoffMax)
	c.backoffs++
	n := c.backoffs
	c.backoff = c.clock.AfterFunc(d, func() { c.post(&backoffEnded{n}) })
}

// ended runs last, when the children have ended, too.
func (c *controller) ended() {
	for _, f := range c.unfollow {
		f()
	}
	c.stopWaiting()
	halt(c.backoff)
	halt(c.reminder)
	halt(c.lingering)
	halt(c.glow)
	c.endTerm()
	c.phase = Closed
	c.proxy.shut()
	c.publish()
	go c.cleanUp()
}

// halt stops a timer that may never have been set.
func halt(t lease.Timer) {
	if t != nil {
		t.Stop()
	}
}

func (c *controller) publish() {
	s := c.proxy.status()
	s.Name, s.Phase, s.Down = c.name, c.phase, c.down
	if old := c.status.Load(); *old != s {
		c.status.Store(&s)
	}
}
