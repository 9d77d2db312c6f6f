package sharding

import (
	"context"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/coordinator"
)

// run is the control loop, until quit is closed.
func (c *controller) run(quit <-chan struct{}) {
	defer close(c.ended)
	for {
		select {
		case <-quit:
			return
		case <-c.control.ready:
		}
		for _, msg := range c.control.take() {
			c.handle(msg)
		}
	}
}

func (c *controller) handle(msg any) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("the control loop panicked", zap.Any("panic", r), zap.Stack("stack"))
		}
	}()
	c.take(msg)
	c.goOnLeaving()
}

func (c *controller) take(message any) {
	switch msg := message.(type) {
	case func():
		msg()
	case *wire.Envelope, *wire.Marker, *wire.MarkerAck, *wire.MarkerWaits: // a Router sent it to this node's address
		c.route(msg)
	case *wire.Order:
		c.onOrder(msg)
	case *wire.Invite:
		c.onInvite(msg)
	case *wire.Offer:
		c.onOffer(msg)
	case *wire.HandedOver:
		c.onHandedOver(msg)
	case *wire.EntityState:
		c.onState(msg)
	case *wire.Stranded:
		c.onStranded(msg)
	case *wire.Inquiry:
		c.onStatusRequest(msg)
	case *wire.Account:
		c.onStatusReply(msg)
	case *wire.Report, *wire.Depart:
		c.coordinating(func(co *coordinator.Coordinator) { co.Tell(msg) })
	}
}

// carryOut does one effect. What takes time runs elsewhere and tells later.
func (c *controller) carryOut(s *shard, f handover.Effect) {
	switch f {
	case handover.DoAcquire:
		c.acquire(s, func(ctx context.Context, h *lease.Handle) (bool, error) { return h.Acquire(ctx) })
	case handover.DoAdopt:
		offer := s.take.Offer
		s.take.Halt() // states that come until it is open are still taken
		c.acquire(s, func(ctx context.Context, h *lease.Handle) (bool, error) { return h.Adopt(ctx, offer) })
	case handover.DoOpen:
		c.open(s)
	case handover.DoInvite:
		c.invite(s)
	case handover.AskAgain:
		s.inv.AskAgain(port{c, s})
	case handover.DropInvite:
		s.inv.Off(port{c, s})
	case handover.DoDrain:
		c.drain(s)
	case handover.DoLose:
		c.lose(s)
	case handover.ForceStop:
		c.forceStop(s)
	case handover.StartYield:
		c.later(&s.deadline, c.ttl(s), func() { c.fire(s, handover.YieldOver) })
	case handover.DoYield:
		c.yield(s)
	case handover.DoTransfer:
		c.transfer(s)
	case handover.DoRelease:
		c.loseStates(s, errNotTaken)
		h := s.handle
		s.term = nil
		c.async(func() func() {
			err := h.Release(c.life)
			return func() { c.onReleased(s, err) }
		})
	case handover.DoOffer:
		s.take.Make(port{c, s})
	case handover.SendOffer:
		s.take.Send(port{c, s})
	case handover.SendDecline:
		s.take.Decline(port{c, s})
	case handover.Report:
		c.fail(s.number, "it is "+s.m.Phase.String())
	}
}
