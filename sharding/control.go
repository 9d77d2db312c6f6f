package sharding

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/coordinator"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
)

// control is what a node decides about one shard. It belongs to the Region's
// control loop, which feeds the machine with events and carries its effects out.
type control struct {
	m        handover.Machine
	handle   *lease.Handle
	term     lease.Term // of the shard's lease, while it is held
	seen     lease.Token
	cause    error // why the node may not host any more
	since    time.Duration
	deadline lease.Timer
	reminder lease.Timer
	inv      handover.Giving
	take     handover.Accepting
	rest     rest
}

// ofHome is a shard, and a home of it.
type ofHome struct {
	shard int
	h     *home
}

// What the control loop is told, besides messages of other nodes.
type (
	acquired struct {
		shard int
		won   bool
		err   error
	}
	lossNoticed    struct{ shard int }
	hostingLost    struct{ cause error } // the member's or the region's lease was lost
	homeEmpty      ofHome
	deadlinePassed ofHome
	yieldEnded     ofHome
	stillRunning   struct {
		shard       int
		h           *home
		since, next time.Duration
	}
	transferEnded struct {
		shard int
		err   error
	}
	releaseEnded struct {
		shard int
		err   error
	}
	due     struct{ do func() } // what package handover put off
	restDue struct {
		shard int
		of    *handover.Taking
	}
	sent          struct{ what *handover.Sending } // a hand-over's states
	recordNoticed struct {
		shard  int
		record lease.Record
		known  bool
	}
	peerGone      struct{ address string }
	toSelf        struct{ msg any }
	bossNoticed   struct{}
	idleDue       struct{}
	evictDue      struct{}
	departRequest struct {
		stop  bool
		rival bool // nobody asked: a later life of the node's ID has joined
		done  chan error
	}
	standingChanged struct{ due bool } // of this node in the group
	returnRequest   struct{}
	departDue       struct{ number int }
	lingerDue       struct{}
	handlesWanted   struct{}
)

// inbox is what the control loop is told, in order. It is no actor's mailbox: nobody
// else can end the loop, or put anything into it.
type inbox struct {
	mu    sync.Mutex
	mail  []any
	ready chan struct{} // has room for one
}

func (b *inbox) put(msg any) {
	b.mu.Lock()
	b.mail = append(b.mail, msg)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

func (b *inbox) take() (mail []any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	mail, b.mail = b.mail, nil
	return mail
}

// controller is the control loop.
type controller struct {
	*Region
	invites uint64                 // the number of the last hand-over; begins anywhere, as another Region was here before
	highest uint64                 // token of a coordinator whose orders were taken
	boss    *wire.Order            // the last that were
	obeying bool                   // and are being taken
	early   map[string]*wire.Order // by address: they came before the record of their coordinator
	failed  []*wire.Failure
	depart  departure
	busy    int // shards that are not Away

	sendings map[*handover.Sending]struct{} // states on their way to other nodes
}

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
	c.departing()
}

func (c *controller) take(message any) {
	switch msg := message.(type) {
	case *acquired:
		c.onAcquired(&c.shards[msg.shard], msg)
	case *lossNoticed:
		if s := &c.shards[msg.shard]; s.term != nil && !s.term.CheckAlive() {
			c.fire(s, handover.Lost)
		}
	case *hostingLost:
		c.onHostingLost(msg.cause)
	case *homeEmpty:
		c.onEmpty(&c.shards[msg.shard], msg.h)
	case *deadlinePassed:
		if s := &c.shards[msg.shard]; s.last == msg.h {
			c.fire(s, handover.Overdue)
		}
	case *yieldEnded:
		if s := &c.shards[msg.shard]; s.last == msg.h {
			c.fire(s, handover.YieldOver)
		}
	case *stillRunning:
		c.onStillRunning(msg)
	case *transferEnded:
		c.onTransferEnded(&c.shards[msg.shard], msg.err)
	case *releaseEnded:
		c.onReleased(&c.shards[msg.shard], msg.err)
	case *due:
		msg.do()
	case *restDue:
		if s := &c.shards[msg.shard]; s.rest.of == msg.of {
			c.endRest(s)
		}
	case *sent:
		c.onSent(msg.what)
	case *recordNoticed:
		c.onRecord(&c.shards[msg.shard], msg)
	case *historyReset:
		c.onHistoryReset()
	case *bossNoticed:
		c.onBoss()
	case *peerGone:
		c.onPeerGone(msg.address)
	case *toSelf:
		c.toSelf(msg.msg)
	case *idleDue:
		c.passivateIdle()
	case *evictDue:
		c.evictOldest()
	case *departRequest:
		c.onDepart(msg)
	case *returnRequest:
		c.depart.asked = false
		c.onReturn()
	case *standingChanged:
		c.onStanding(msg.due)
	case *departDue:
		if msg.number == c.depart.number {
			c.sayDeparting()
		}
	case *lingerDue:
		c.depart.quietOver = true
	case *handlesWanted:
		c.onHandlesWanted()
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
		c.onInquiry(msg)
	case *wire.Account:
		c.onAccount(msg)
	case *wire.Report, *wire.Depart:
		c.coordinating(func(co *coordinator.Coordinator) { co.Tell(msg) })
	}
}

// toSelf is what a Router sent to this node's address.
func (c *controller) toSelf(msg any) {
	if name, ok := msg.(interface{ GetName() string }); ok {
		switch msg.(type) {
		case *wire.Envelope, *wire.Marker, *wire.MarkerAck, *wire.MarkerWaits:
			c.route(name.GetName(), msg)
			return
		}
	}
	c.take(msg)
}

// fire feeds one event to a shard's machine and carries out what comes of it.
func (c *controller) fire(s *shard, e handover.Event) {
	was := s.m.Phase
	var effects []handover.Effect
	s.m, effects = s.m.Next(e)
	if s.m.Phase != was {
		c.log.Debug("phase", zap.String("shard", s.name), zap.Stringer("from", was), zap.Stringer("to", s.m.Phase))
	}
	switch {
	case was == handover.Away && s.m.Phase != handover.Away:
		c.busy++
	case was != handover.Away && s.m.Phase == handover.Away:
		c.busy--
	}
	s.phase.Store(uint32(s.m.Phase))
	for _, f := range effects {
		c.carryOut(s, f)
	}
	if s.m.Phase == handover.Away && was != handover.Away {
		c.forget(s)
	}
}

// carryOut does one effect. What takes time runs elsewhere and tells later.
func (c *controller) carryOut(s *shard, f handover.Effect) {
	switch f {
	case handover.DoAcquire:
		c.acquire(s, func(ctx context.Context, h *lease.Handle) (bool, error) { return h.Acquire(ctx) })
	case handover.DoAdopt:
		offer := s.take.Offer
		s.take.Halt() // what comes of states until it is open is taken still
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
		h := s.last
		s.deadline = c.clock.AfterFunc(c.ttl(s), func() { c.post(&yieldEnded{s.number, h}) })
	case handover.DoYield:
		c.yield(s)
	case handover.DoTransfer:
		c.transfer(s)
	case handover.DoRelease:
		c.loseStates(s, errNotTaken)
		h := s.handle
		s.term = nil
		c.async(func() any { return &releaseEnded{s.number, h.Release(c.life)} })
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

// async runs f elsewhere and tells its result.
func (c *controller) async(f func() any) {
	c.ops.Go(func() { c.post(f()) })
}

// leaseOf returns the handle of the shard's lease.
func (c *controller) leaseOf(s *shard) (*lease.Handle, error) {
	if s.handle != nil {
		return s.handle, nil
	}
	h, err := c.keeper.Lease(s.name, c.options(directory.Metadata(c.typ.Shards, true))...)
	if err != nil {
		return nil, err
	}
	h.OnLost(func(lease.Loss) { c.post(&lossNoticed{s.number}) })
	s.handle = h
	return h, nil
}

func (c *controller) acquire(s *shard, f func(context.Context, *lease.Handle) (bool, error)) {
	h, err := c.leaseOf(s)
	if err != nil {
		c.async(func() any { return &acquired{s.number, false, err} })
		return
	}
	c.async(func() any {
		won, err := f(c.life, h)
		return &acquired{s.number, won, err}
	})
}

func (c *controller) onAcquired(s *shard, msg *acquired) {
	if msg.err != nil && !errors.Is(msg.err, context.Canceled) {
		c.log.Warn("a shard could not be acquired", zap.String("shard", s.name), zap.Error(msg.err))
	}
	if !msg.won {
		if msg.err != nil && s.handle != nil {
			h := s.handle // what may have been applied is given back
			c.ops.Go(func() { _ = h.Release(c.life) })
		}
		c.fire(s, handover.NotWon)
		return
	}
	s.term, _ = lease.TermOf(s.handle)
	c.fire(s, handover.Won)
}
