package singleton

import (
	"context"

	"github.com/holdfast-go/holdfast/lease"
)

// This file tells other nodes where the host is, if the lease can't tell its holder
// (WithLease): the host holds a second lease, of the Keeper, whose record has its address.
// Only the first lease says whether the child may run.

// hostName is the name of the second lease.
func hostName(name string) string {
	n, _ := lease.Name("host", name) // checked by Start
	return n
}

// silent reports whether the lease can't tell its holder.
func silent(l lease.Lease) bool {
	_, ok := lease.As[lease.HolderFinder](l)
	return !ok
}

// announce begins to say that this node hosts, until endSign. It is called when a child was
// made, and goes on over the child's ends.
func (c *controller) announce() {
	if c.endSign != nil {
		return
	}
	ctx, cancel := context.WithCancel(c.life)
	before, over := c.signed, make(chan struct{})
	c.endSign, c.signed = cancel, over
	c.ops.Go(func() {
		defer close(over)
		if before != nil {
			<-before // one at a time
		}
		_ = lease.RunForever(ctx, c.sign, func(ctx context.Context, t lease.Term) error {
			c.post(func() { c.onAnnounced(over, t.Token()) })
			<-ctx.Done()
			return nil
		}, lease.WithBackoff(failingMost/4, failingMost/4))
	})
}

// endAnnouncement ends it: this node does not host any more.
func (c *controller) endAnnouncement() {
	if c.endSign != nil {
		c.endSign()
		c.endSign = nil
	}
}

// onAnnounced: other nodes route by the token from now on.
func (c *controller) onAnnounced(over chan struct{}, token lease.Token) {
	if over != c.signed || c.endSign == nil {
		return
	}
	c.signedAs = token
	if c.phase.hosts() && c.proxy.gate != nil {
		c.proxy.announcedAs(token)
	}
}
