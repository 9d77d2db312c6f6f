package singleton

import (
	"context"
	"errors"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// This file is the side of a planned hand-over that takes over; handover.go has
// the picture.

// onInvite makes an offer, or says no.
func (c *controller) onInvite(m *wire.Invite) {
	if m.Name != c.lname || m.From == nil {
		return
	}
	_, can := lease.As[lease.TransferLease](c.lease)
	p := c.port()
	switch {
	case !can:
		handover.Decline(p, m.From, m.Number, "its lease can't be handed over")
	case c.set.proxyOnly:
		handover.Decline(p, m.From, m.Number, "it only forwards")
	case c.phase == Standby && c.proxy.refuses(m.From):
		handover.Decline(p, m.From, m.Number, c.proxy.judged.refused.Error())
	default:
		c.take.Invited(p, &handover.Of(c.system).Taken, m, c.loseTaken)
	}
}

// onHandedOver takes the old host's word.
func (c *controller) onHandedOver(m *wire.HandedOver) {
	if m.Name == c.lname {
		c.take.Word(c.port(), m, func(int) {
			c.log.Warn("the state that was handed over did not come")
			c.event(Event{Kind: ColdStart, Reason: handover.ErrMissing})
		})
	}
}

// onState takes the state that comes before the old host's word. A state that comes too
// late was told when this node went on without it.
func (c *controller) onState(m *wire.EntityState) {
	t := c.take.States
	if !t.Is(m.From, m.Number) {
		t = c.late
	}
	if m.Name != c.lname || m.Key != sole || !t.Is(m.From, m.Number) {
		return
	}
	if err := t.State(m); err != nil {
		c.log.Warn("the state that was handed over is lost", zap.Error(err))
		c.event(Event{Kind: ColdStart, Reason: err})
	}
}

var errNotTaken = errors.New("the lease was not taken up with it")

// adopted reports whether the present term is what was handed over. An Adopt that
// came late may have won a name that others have had since.
func (c *controller) adopted() bool {
	t, ok := c.term.(lease.Continuing)
	return !ok || t.Adopted(c.take.Offer)
}

// takeUp returns the state that came, and tells if nothing did.
func (c *controller) takeUp() *handover.States {
	t := c.take.States
	if t == nil {
		return nil
	}
	c.take.States = nil
	states := t.Begin()
	if c.take.Mute && !t.Complete() && states.Len() == 0 {
		c.event(Event{Kind: ColdStart, Reason: handover.ErrNoWord})
	}
	return states
}

// forgetState forgets what was handed over with a lease that did not come: others
// may have hosted since when the next one does.
func (c *controller) forgetState() {
	t := c.take.States
	c.loseTaken(c.takeUp())
	if t != nil && !t.Complete() && !c.take.Mute { // that was told, or there was nothing to tell
		c.late = t
	}
	c.take.Forget()
}

// loseTaken tells of a state that came, and that no child gets.
func (c *controller) loseTaken(states *handover.States) {
	if len(states.Drop()) > 0 {
		c.log.Warn("the state that was handed over is lost", zap.Error(errNotTaken))
		c.event(Event{Kind: ColdStart, Reason: errNotTaken})
	}
}

// adopt takes up what was handed over.
func (c *controller) adopt() {
	c.take.Halt()
	l, _ := lease.As[lease.TransferLease](c.lease)
	offer := c.take.Offer
	ctx, cancel := context.WithCancel(c.life)
	c.cancelAcq = cancel
	c.async(func() func() {
		defer cancel()
		ok, err := boundary.Get(func() (bool, error) { return l.Adopt(ctx, offer) })
		return func() { c.onAcquired(ok, err) }
	})
}

// port is the manager as the two sides of a hand-over see it.
func (c *controller) port() handover.Port { return port{c} }

type port struct{ c *controller }

func (p port) Name() string                         { return p.c.lname }
func (p port) Self() *wire.Node                     { return p.c.proxy.Self }
func (p port) Clock() lease.Clock                   { return p.c.clock }
func (p port) Log() *zap.Logger                     { return p.c.log }
func (p port) Life() context.Context                { return p.c.life }
func (p port) State() handover.Machine              { return p.c.hold }
func (p port) Fire(e handover.Event)                { p.c.fire(e) }
func (p port) Send(address string, m proto.Message) { p.c.proxy.Send(address, m) }
func (p port) Post(f func())                        { p.c.post(f) }
func (p port) Aside(f func() func())                { p.c.async(f) }

// Offers returns what makes an offer, whose lease may be the user's.
func (p port) Offers() func(context.Context) (lease.Offer, error) {
	l, _ := lease.As[lease.TransferLease](p.c.lease) // checked by onInvite
	return func(ctx context.Context) (lease.Offer, error) {
		return boundary.Get(func() (lease.Offer, error) { return l.Offer(ctx) })
	}
}
