package sharding

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/coordinator"
)

// controller is the control loop.
type controller struct {
	books
	shards       shards
	registration *registration
	coordination *coordination
	orders       orders
	leaving      leaving
	passivation  passivation
	ended        chan struct{} // closed when the loop has
}

// connect shows the parts of the loop to each other.
func (c *controller) connect() {
	b := &c.books
	c.orders = orders{books: b, shards: c.shards, refusal: c.refusal, early: map[string]*wire.Order{}}
	c.leaving.books, c.leaving.shards = b, c.shards
	c.leaving.coordination = c.coordination
	c.passivation.node, c.passivation.shards = c.node, c.shards
	c.crowd.evictOldest = c.passivation.evictOldest
}

// run is the control loop, until quit is closed.
func (c *controller) run(quit <-chan struct{}) {
	defer close(c.ended)
	for {
		select {
		case <-quit:
			return
		case <-c.inbox.ready:
		}
		for _, msg := range c.inbox.take() {
			c.handle(msg)
		}
	}
}

func (c *controller) handle(msg any) {
	defer boundary.Survive(c.log, "the control loop panicked")
	c.take(msg)
	c.leaving.goOn()
}

func (c *controller) take(message any) {
	switch msg := message.(type) {
	case func():
		msg()
	case *wire.Envelope, *wire.Marker, *wire.MarkerAck, *wire.MarkerWaits: // a Router sent it to this node's address
		c.shards.route(msg)
	case *wire.Order:
		c.orders.take(msg)
	case *wire.Invite:
		if s := c.shards.named(msg.Name); s != nil && msg.From != nil {
			s.invited(msg, c.refusal())
		}
	case *wire.Offer:
		if s := c.shards.named(msg.Name); s != nil {
			s.inv.Answered(port{s}, msg, func() { s.fire(handover.Declined) })
		}
	case *wire.HandedOver:
		if s := c.shards.named(msg.Name); s != nil {
			s.handedOver(msg)
		}
	case *wire.EntityState:
		if s := c.shards.named(msg.Name); s != nil && ValidateEntityID(msg.Key) == nil && c.shards.of(msg.Key) == &s.shard {
			s.state(msg)
		}
	case *wire.Stranded:
		c.leaving.onStranded(msg)
	case *wire.Report, *wire.Depart:
		c.coordination.with(func(co *coordinator.Coordinator) { co.Tell(msg) })
	}
}

// refusal is why this node takes no shard; empty if it does.
func (c *controller) refusal() string {
	switch {
	case c.set.proxyOnly:
		return "this node hosts nothing"
	case c.leaving.on:
		return "this node is leaving"
	case c.registration.whyNot() != nil:
		return ErrNotHosting.Error()
	}
	return ""
}

func (c *controller) onPeerGone(address string) {
	c.coordination.with(func(co *coordinator.Coordinator) { co.PeerGone(address) })
	for i := range c.shards {
		s := &c.shards[i]
		s.cutOff(address)
		s.take.LinkBroke(port{s}, address)
		s.inv.LinkBroke(port{s}, address)
		if s.m.Phase.Asks() && s.inv.To.GetAddress() == address {
			s.fire(handover.Declined)
		}
	}
}

// onHistoryReset forgets all tokens but those of what is held now, which ended with
// the history before: so they are of the one that stands. The table tells of each of
// its parts by itself, so what one has told since is taken up again.
func (c *controller) onHistoryReset() {
	c.highest = 0
	for i := range c.shards {
		s := &c.shards[i]
		s.seen = 0
		if s.term != nil && s.term.CheckAlive() {
			s.seen = s.term.Token()
		}
		rec, known := c.table.Record(i)
		s.do(func() {
			if s.router != nil {
				s.router.Forget(s.seen)
			}
		})
		if known {
			s.onRecord(rec, true)
		}
	}
}

// orders are the coordinator's, as they come in. One that is not about the present is refused: by
// the coordinator's token, by the node's incarnation, by the number of shards, and for each shard
// by the token it was decided on. So is one that does not come from where the records say that its
// coordinator is.
type orders struct {
	*books
	shards  shards
	refusal func() string          // why this node takes no shard
	early   map[string]*wire.Order // by address: they came before the record of their coordinator
}

// maxEarly is how many nodes' orders wait for the record of a coordinator.
const maxEarly = 8

// commands reports whether an order is from the node that coordinates under its token; known is
// false until a record of that token has come.
func (o *orders) commands(m *wire.Order) (is, known bool) {
	record, ok := o.table.Coordinator()
	return ok && o.speaksFor(m.From, record.Owner), m.Coordinator <= uint64(record.Token)
}

// onCoordinatorRecord takes up orders that came before the record of their coordinator.
func (o *orders) onCoordinatorRecord() {
	for address, m := range o.early {
		if _, known := o.commands(m); known {
			delete(o.early, address)
			o.take(m)
		}
	}
}

func (o *orders) take(m *wire.Order) {
	if m.Type != o.names.Key || m.From == nil {
		return
	}
	why := ""
	switch is, known := o.commands(m); {
	case m.Coordinator < o.newest():
		why = fmt.Sprintf("of a coordinator with token %d, after one with %d", m.Coordinator, o.newest())
	case known && !is:
		why = "of a node that does not coordinate"
	case !known:
		if len(o.early) < maxEarly || o.early[m.From.Address] != nil {
			o.early[m.From.Address] = m
		}
		return // who coordinates gives it again
	case m.To != o.self.Incarnation:
		why = "for another life of this node"
	case int(m.Shards) != o.typ.Shards:
		why = fmt.Sprintf("for %d shards, here there are %d", m.Shards, o.typ.Shards)
	case o.set.proxyOnly:
		why = o.refusal()
	}
	o.failed, o.obeying = nil, true
	if why != "" {
		o.log.Info("orders refused", zap.String("why", why), zap.String("from", m.From.GetAddress()))
		for _, a := range m.Assignments {
			o.fail(int(a.Shard), why)
		}
	} else {
		o.highest = m.Coordinator // the records confirm it: a token that was made up must not shut the true ones out
		o.lastOrder = m
		for _, a := range m.Assignments {
			o.obey(a)
		}
	}
	if len(o.failed) > 0 {
		o.report(m, o.failed...)
	}
	o.failed, o.obeying = nil, false
}

// obey begins what was ordered about one shard.
func (o *orders) obey(a *wire.Assignment) {
	if int(a.Shard) >= o.typ.Shards {
		return
	}
	s := &o.shards[a.Shard]
	stale := lease.Token(a.Token) < s.seen
	if stale && a.Next == nil { // a coordinator need not have seen who held a shard that is free
		_, stale = o.table.Record(s.number)
	}
	switch {
	case stale:
		o.fail(s.number, fmt.Sprintf("decided on token %d, it is at %d", a.Token, s.seen))
	case a.Next != nil && s.m.Phase.HandsOver() && s.inv.To.GetIncarnation() == a.Next.Incarnation:
		// It is under way: the coordinator asks again, as a link broke.
	case a.Next != nil && (s.term == nil || uint64(s.term.Token()) != a.Token):
		o.fail(s.number, "not held under that token")
	case a.Next != nil:
		if s.m.Phase == handover.Active {
			s.inv = handover.Giving{To: a.Next}
		}
		s.fire(handover.Move)
	default:
		if why := o.refusal(); why != "" {
			o.fail(s.number, why)
		} else {
			s.fire(handover.Host)
		}
	}
}
