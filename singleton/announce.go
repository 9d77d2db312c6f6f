package singleton

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// This file tells other nodes who hosts under a lease that has no holder to be looked up
// (WithLease): the host holds a second one, of the Keeper, which says where it is. Whether
// the child may run is for the first alone to say.

// hostName is the name of the lease that says who hosts.
func hostName(name string) string {
	n, _ := lease.Name("host", name) // checked by Start
	return n
}

// silent reports whether nobody can find out from the lease who holds it.
func silent(l lease.Lease) bool {
	_, ok := lease.As[lease.HolderFinder](l)
	return !ok
}

// announce begins to say that this node hosts, until hush. It is called when a child was
// made, and goes on over the child's ends.
func (c *controller) announce() {
	if c.hush != nil {
		return
	}
	ctx, cancel := context.WithCancel(c.life)
	before, over := c.signed, make(chan struct{})
	c.hush, c.signed = cancel, over
	c.ops.Go(func() {
		defer close(over)
		if before != nil {
			<-before // one at a time
		}
		for ctx.Err() == nil {
			err := lease.Run(ctx, c.sign, func(ctx context.Context, t lease.Term) error {
				c.proxy.post(&announced{over, t.Token()})
				<-ctx.Done()
				return nil
			})
			if errors.Is(err, lease.ErrClosed) || errors.Is(err, lease.ErrInvalid) {
				return
			}
			select { // it was lost, or its record can't be read
			case <-time.After(failingMost / 4):
			case <-ctx.Done():
			}
		}
	})
}

// quiet ends it: this node hosts no more.
func (c *controller) quiet() {
	if c.hush != nil {
		c.hush()
		c.hush = nil
	}
}

// onAnnounced: other nodes route by the token from now on.
func (c *controller) onAnnounced(msg *announced) {
	if msg.over != c.signed || c.hush == nil {
		return
	}
	c.signedAs = msg.token
	if c.phase.hosts() && c.proxy.gate != nil {
		c.proxy.announcedAs(msg.token)
	}
}
