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
func TestOrdersLostWithALinkAreRepeated(t *testing.T) {
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

// So is what was to be handed over.
func TestMovesLostWithALinkAreOrderedAgain(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b", 12)
		d := c.node("d")
		var lost atomic.Int64
		c.net.SetLoss(func(string, string) bool { lost.Add(1); return true })
		d.start(12)
		time.Sleep(2 * time.Second) // the order of the one that does not coordinate is lost
		if lost.Load() == 0 {
			t.Fatal("no order was on its way")
		}
		c.net.SetLoss(nil)
		ns = append(ns, d)
		for _, n := range ns {
			for _, o := range ns {
				if n != o {
					n.system.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: o.system.Address()})
				}
			}
		}
		c.settled(6*time.Second, ns...) // and not after the 15 s that a hand-over may take
		c.log.check()
	})
}
