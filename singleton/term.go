package singleton

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/lease"
)

// This file is the term that the child works under.

// acquire calls Acquire, or Adopt, elsewhere.
func (c *controller) acquire(f func(context.Context) (bool, error)) {
	ctx, cancel := context.WithCancel(c.life)
	c.cancelAcq = cancel
	c.async(func() func() {
		defer cancel()
		ok, err := boundary.Get(func() (bool, error) { return f(ctx) })
		return func() { c.onAcquired(ok, err) }
	})
}

func (c *controller) onAcquired(won bool, err error) {
	c.storeSaid(err)
	switch {
	case won:
		c.unused = true // until a child has begun
		c.moved, c.movedTo = false, nil
		// A loss may have been told before this result was: spawn asks the term
		// itself whether it still is what it was.
		c.try("the lease", func() { c.term, c.free = lease.TermOf(c.lease) })
		c.fire(handover.Won)
	case err != nil:
		if !errors.Is(err, context.Canceled) {
			c.log.Warn("acquiring failed", zap.Error(err))
		}
		c.fire(failed)
	default:
		c.unused = false
		c.fire(handover.NotWon)
	}
}

// endTerm forgets the term; nothing runs under it any more.
func (c *controller) endTerm() {
	c.endAnnouncement()
	if c.term != nil {
		free := c.free
		c.term, c.free = nil, nil
		c.try("the lease", free)
		c.proxy.token = 0
		if !c.closing() { // else there may be no other node
			c.gaveUp(nil)
		}
	}
}

func (c *controller) token() lease.Token {
	if c.term == nil {
		return 0
	}
	return c.term.Token()
}

// alive reports whether the present term is known to last.
func (c *controller) alive() (is bool) {
	if c.term != nil {
		c.try("the lease", func() { is = c.term.CheckAlive() })
	}
	return is
}

// The following waits for a name that another node holds.

// waitFree has the lease say when the name may be free, or tries again. A lease that was
// won and was lost at once may be so again: it is not asked for without a pause.
func (c *controller) waitFree() {
	w, ok := lease.As[lease.Waiter](c.lease)
	if !ok || c.unused && c.phase == Standby {
		c.retryLater(c.set.takenMost) // tries again where others would be told
		return
	}
	c.stopWaiting()
	n := c.waiting
	d := min(time.Duration(c.rank()), mostRanks) * rankDelay
	err := boundary.Contained(func() {
		c.unwait = w.OnFree(func() { c.clock.AfterFunc(d, func() { c.post(func() { c.onFree(n) }) }) })
	})
	if err != nil {
		c.log.Error("the lease's OnFree failed: it is tried again from time to time", zap.Error(err))
		c.retryLater(c.set.takenMost)
	}
}

func (c *controller) retryLater(most time.Duration) {
	c.stopWaiting()
	n := c.waiting
	t := c.clock.AfterFunc(actors.Backoff(c.failures, min(c.set.backoffMin, most), most), func() { c.post(func() { c.onFree(n) }) })
	c.failures++
	c.unwait = t.Stop
}

// onFree: the wait of that number is over. What an earlier one says is stale.
func (c *controller) onFree(n int) {
	switch {
	case n != c.waiting:
	case c.phase == Offered:
		c.take.Await(c.port()) // free for us: it may have been handed over
	default:
		c.fire(free)
	}
}

func (c *controller) stopWaiting() {
	c.waiting++
	if stop := c.unwait; stop != nil {
		c.unwait = nil
		c.try("the lease", func() { stop() })
	}
}
