package singleton

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/lease"
)

// This file is the term that the child works under.

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
