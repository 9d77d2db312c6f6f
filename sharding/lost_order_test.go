package sharding_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/remote"
)

// What a node was to host is ordered again when the link to it broke: the order may
// have been lost with it, as it is with protoactor's remote for two seconds after an
// attempt to connect that failed.
func TestOrdersLostWithALinkAreGivenAnew(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		var lost atomic.Int64
		c.net.SetLoss(func(string, string) bool { lost.Add(1); return true }) // either may coordinate
		for _, n := range ns {
			n.start(10)
		}
		time.Sleep(time.Second)
		if lost.Load() == 0 {
			t.Fatal("no order was on its way")
		}
		c.net.SetLoss(nil)
		for i, n := range ns { // as remote says when it gives a link up; the next one works
			n.system.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: ns[1-i].system.Address()})
		}
		c.settled(time.Second, ns...)
	})
}
