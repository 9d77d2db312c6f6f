package sharding

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// This file takes the coordinator's orders. An order that is not about the present
// is refused: by the coordinator's token, by the node's incarnation, by the number
// of shards, and for each shard by the token it was decided on. So is one that does not
// come from where the records say that its coordinator is.

// maxEarly is how many nodes' orders wait for the record of a coordinator.
const maxEarly = 8

// commands reports whether an order is from the node that coordinates under its token; known is
// false until a record of that token has come.
func (c *controller) commands(m *wire.Order) (is, known bool) {
	record, ok := c.table.Coordinator()
	return ok && c.speaksFor(m.From, record.Owner), m.Coordinator <= uint64(record.Token)
}

// newest is the highest token of a coordinator that this node knows, by its orders or by the
// records: it may not have ordered anything here yet.
func (c *controller) newest() uint64 {
	record, _ := c.table.Coordinator()
	return max(c.highest, uint64(record.Token))
}

// speaksFor reports whether a message is from the owner of a record. The records of a
// node without remote have no address.
func (r *Region) speaksFor(from *wire.Node, o lease.Owner) bool {
	return from.Is(wire.NodeOf(o)) || o.Incarnation == r.self.Incarnation && from.Is(r.self)
}

// onCoordinatorRecord takes up orders that came before the record of their coordinator.
func (c *controller) onCoordinatorRecord() {
	for address, m := range c.early {
		if _, known := c.commands(m); known {
			delete(c.early, address)
			c.onOrder(m)
		}
	}
}

func (c *controller) onOrder(m *wire.Order) {
	refuse := func(why string) {
		c.log.Info("orders refused", zap.String("why", why), zap.String("from", m.From.GetAddress()))
		failures := make([]*wire.Failure, len(m.Assignments))
		for i, a := range m.Assignments {
			failures[i] = &wire.Failure{Shard: a.Shard, Reason: why}
		}
		c.send(m.From.GetAddress(), &wire.Report{Type: c.names.Key, From: c.self, Coordinator: m.Coordinator, Failures: failures})
	}
	if m.Type != c.names.Key || m.From == nil {
		return
	}
	switch is, known := c.commands(m); {
	case m.Coordinator < c.newest():
		refuse(fmt.Sprintf("of a coordinator with token %d, after one with %d", m.Coordinator, c.newest()))
		return
	case known && !is:
		refuse("of a node that does not coordinate")
		return
	case !known:
		if len(c.early) < maxEarly || c.early[m.From.Address] != nil {
			c.early[m.From.Address] = m
		}
		return // who coordinates gives it again
	case m.To != c.self.Incarnation:
		refuse("for another life of this node")
		return
	case int(m.Shards) != c.typ.Shards:
		refuse(fmt.Sprintf("for %d shards, here there are %d", m.Shards, c.typ.Shards))
		return
	case !c.hosts:
		refuse("this node hosts nothing")
		return
	}
	c.highest = m.Coordinator // the records confirm it: a token that was made up must not shut the true ones out
	c.lastOrder = m
	c.failed = nil
	for _, a := range m.Assignments {
		c.obey(a)
	}
	if len(c.failed) > 0 {
		c.send(m.From.Address, &wire.Report{Type: c.names.Key, From: c.self, Coordinator: m.Coordinator, Failures: c.failed})
	}
	c.failed, c.obeying = nil, false
}

// obey begins what was ordered about one shard.
func (c *controller) obey(a *wire.Assignment) {
	c.obeying = true
	if int(a.Shard) >= c.typ.Shards {
		return
	}
	s := &c.shards[a.Shard]
	stale := lease.Token(a.Token) < s.seen
	if stale && a.Next == nil { // a coordinator need not have seen who held a shard that is free
		_, stale = c.table.Record(s.number)
	}
	switch {
	case stale:
		c.fail(s.number, fmt.Sprintf("decided on token %d, it is at %d", a.Token, s.seen))
	case a.Next != nil && s.m.Phase.HandsOver() && s.inv.To.GetIncarnation() == a.Next.Incarnation:
		// It is under way: the coordinator asks again, as a link broke.
	case a.Next != nil:
		if s.term == nil || uint64(s.term.Token()) != a.Token {
			c.fail(s.number, "not held under that token")
			return
		}
		if s.m.Phase == handover.Active {
			s.inv = handover.Giving{To: a.Next}
		}
		c.fire(s, handover.Move)
	case c.leaving.on:
		c.fail(s.number, "this node is leaving")
	case !c.mayHost():
		c.fail(s.number, ErrNotHosting.Error())
	default:
		c.fire(s, handover.Host)
	}
}

// fail tells the coordinator that what it ordered about a shard came to nothing.
func (c *controller) fail(shard int, why string) {
	f := &wire.Failure{Shard: uint32(shard), Reason: wire.Text(why)}
	if c.obeying {
		c.failed = append(c.failed, f)
		return
	}
	if c.lastOrder != nil {
		c.send(c.lastOrder.From.Address, &wire.Report{Type: c.names.Key, From: c.self, Coordinator: c.lastOrder.Coordinator,
			Failures: []*wire.Failure{f}})
	}
}
