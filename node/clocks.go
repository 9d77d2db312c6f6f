package node

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/internal/meters"
	"github.com/holdfast-go/holdfast/membership"
)

const (
	compareEvery = time.Minute
	comparedFor  = 5 * compareEvery // a median counts, where metrics are read less often
	compareMost  = 16               // clocks, chosen at random: enough for a median
	answerWithin = 2 * time.Second  // so that no answer is more than 1 s wrong
)

// clocks compares the node's clock with those of its group. It measures one number for each node, not for
// each pair of nodes: a clock that is off then shows at its own node alone, unless there are two.
type clocks struct {
	node *Node
	last atomic.Pointer[comparison]
}

type comparison struct {
	began time.Time
	ahead *time.Duration // of the median; nil: no other node has answered
}

// observe has the clocks compared when metrics are read, until Stop.
func (c *clocks) observe() error {
	c.last.Store(&comparison{})
	m := meters.New(c.node.keeper.MeterProvider(), "node", attribute.String("holdfast.node", c.node.cfg.ID))
	context.AfterFunc(c.node.life, m.Observe(m.ObservedTime("clock.offset",
		"By how much the node's clock is ahead of the median of its group's; none while no other node answers.", c.tell)))
	return m.Err()
}

// tell tells what came of the last comparison, and begins the next if it is due: a reader of metrics does
// not wait for other nodes.
func (c *clocks) tell(to func(ahead time.Duration)) {
	last, next, g := c.last.Load(), &comparison{began: time.Now()}, c.node.Group()
	age := time.Since(last.began)
	if last.ahead != nil && age < comparedFor {
		to(*last.ahead)
		next.ahead = last.ahead // until it is known
	}
	if g == nil || c.node.keeper.Owner().Address == "" || age < compareEvery || !c.last.CompareAndSwap(last, next) {
		return
	}
	if done, err := c.node.begin(); err == nil {
		c.node.starting.Go(func() { c.last.Store(&comparison{next.began, c.compare(g)}) })
		done()
	}
}

// compare asks members, this node among them, one after the other. Those that do not answer do not count.
func (c *clocks) compare(g *membership.Group) *time.Duration {
	noEvents := inquiry.Request{From: time.Now().AddDate(1, 0, 0)}
	members := g.Members().Members
	var offsets []time.Duration
	for _, i := range rand.Perm(len(members))[:min(len(members), compareMost)] {
		ctx, cancel := context.WithTimeout(c.node.life, answerWithin)
		if _, _, ahead, err := inquiry.Of(c.node.system).AskLife(ctx, members[i].Owner(), noEvents); err == nil {
			offsets = append(offsets, ahead)
		}
		cancel()
	}
	slices.Sort(offsets)
	if n := len(offsets); n > 1 {
		return new(-(offsets[(n-1)/2] + offsets[n/2]) / 2)
	}
	return nil
}
