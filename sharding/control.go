package sharding

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/mutant"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// control is what a node decides about one shard. It belongs to the Region's
// control actor, which feeds the machine with events and carries its effects out.
type control struct {
	m        machine
	handle   *lease.Handle
	term     lease.Term // of the shard's lease, while it is held
	seen     lease.Token
	cause    error // why the node may not host any more
	since    time.Duration
	deadline lease.Timer
	reminder lease.Timer
	inv      invitation
	take     taking
	cancel   context.CancelFunc // of the Acquire or Adopt under way
}

// What the control actor is told, besides messages of other nodes.
type (
	acquired struct {
		shard int
		won   bool
		err   error
	}
	lossNoticed struct{ shard int }
	hostingLost struct{ cause error } // the member's or the region's lease was lost
	homeEmpty   struct {
		shard int
		h     *home
	}
	deadlinePassed struct {
		shard int
		h     *home
	}
	yieldEnded struct {
		shard int
		h     *home
	}
	stillRunning struct {
		shard       int
		h           *home
		since, next time.Duration
	}
	inviteExpired struct {
		shard  int
		number uint64
	}
	transferEnded struct {
		shard int
		err   error
	}
	releaseEnded struct {
		shard int
		err   error
	}
	offerReady struct {
		shard int
		offer lease.Offer
		err   error
	}
	offerExpired struct {
		shard  int
		number uint64
	}
	ownRecord struct {
		shard  int
		number uint64
	}
	recordNoticed struct {
		shard  int
		record lease.Record
		known  bool
	}
	peerGone      struct{ address string }
	ackDue        struct{ shard int }
	toSelf        struct{ msg any }
	idleDue       struct{}
	evictDue      struct{}
	departRequest struct {
		stop bool
		done chan error
	}
	returnRequest struct{}
	departDue     struct{ number int }
	lingerDue     struct{}
)

// controller is the control actor.
type controller struct {
	*Region
	invites uint64
	highest uint64      // token of a coordinator whose orders were taken
	boss    *wire.Order // the last that were
	obeying bool        // and are being taken
	failed  []*wire.Failure
	depart  departure
}

// Receive implements actor.Actor.
func (c *controller) Receive(ctx actor.Context) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("the control actor panicked", zap.Any("panic", r), zap.Stack("stack"))
		}
	}()
	c.take(ctx.Message())
	c.departing()
}

func (c *controller) take(message any) {
	switch msg := message.(type) {
	case *actor.Stopped:
		close(c.ended)
	case *acquired:
		c.onAcquired(&c.shards[msg.shard], msg)
	case *lossNoticed:
		if s := &c.shards[msg.shard]; s.term != nil && !s.term.CheckAlive() {
			c.fire(s, lost)
		}
	case *hostingLost:
		c.onHostingLost(msg.cause)
	case *homeEmpty:
		c.onEmpty(&c.shards[msg.shard], msg.h)
	case *deadlinePassed:
		if s := &c.shards[msg.shard]; s.last == msg.h {
			c.fire(s, overdue)
		}
	case *yieldEnded:
		if s := &c.shards[msg.shard]; s.last == msg.h {
			c.fire(s, yieldOver)
		}
	case *stillRunning:
		c.onStillRunning(msg)
	case *inviteExpired:
		s := &c.shards[msg.shard]
		if (s.m.phase == Inviting || s.m.phase == Asking) && s.inv.number == msg.number {
			c.log.Info("no answer to an invitation", zap.String("shard", s.name), zap.String("node", s.inv.node.GetAddress()))
			c.fire(s, declined)
		}
	case *transferEnded:
		c.onTransferEnded(&c.shards[msg.shard], msg.err)
	case *releaseEnded:
		c.onReleased(&c.shards[msg.shard], msg.err)
	case *offerReady:
		c.onOfferReady(&c.shards[msg.shard], msg)
	case *offerExpired:
		if s := &c.shards[msg.shard]; s.taking(msg.number) {
			c.fire(s, offerOver)
		}
	case *ownRecord:
		if s := &c.shards[msg.shard]; s.taking(msg.number) {
			c.fire(s, taken)
		}
	case *recordNoticed:
		c.onRecord(&c.shards[msg.shard], msg)
	case *peerGone:
		c.onPeerGone(msg.address)
	case *ackDue:
		s := &c.shards[msg.shard]
		s.do(func() { s.routing().Acknowledge() })
	case *toSelf:
		c.toSelf(msg.msg)
	case *idleDue:
		c.passivateIdle()
	case *evictDue:
		c.evictOldest()
	case *departRequest:
		c.onDepart(msg)
	case *returnRequest:
		c.onReturn()
	case *departDue:
		if msg.number == c.depart.number {
			c.sayDeparting()
		}
	case *lingerDue:
		c.depart.glown = true
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
	case *wire.Report, *wire.Depart:
		if co := c.coordinator.Load(); co != nil {
			co.tell(msg)
		}
	}
}

// toSelf is what a Router sent to this node's address.
func (c *controller) toSelf(msg any) {
	if name, ok := msg.(interface{ GetName() string }); ok {
		switch msg.(type) {
		case *wire.Envelope, *wire.Relay, *wire.RelayAck, *wire.Marker, *wire.MarkerAck:
			c.route(name.GetName(), msg)
			return
		}
	}
	c.take(msg)
}

// fire feeds one event to a shard's machine and carries out what comes of it.
func (c *controller) fire(s *shard, e event) {
	was := s.m.phase
	var effects []effect
	s.m, effects = s.m.next(e)
	if s.m.phase != was {
		c.log.Debug("phase", zap.String("shard", s.name), zap.Stringer("from", was), zap.Stringer("to", s.m.phase))
	}
	s.phase.Store(uint32(s.m.phase))
	for _, f := range effects {
		c.carryOut(s, f)
	}
	if s.m.phase == Away && was != Away {
		c.forget(s)
	}
}

// carryOut does one effect. What takes time runs elsewhere and tells later.
func (c *controller) carryOut(s *shard, f effect) {
	switch f {
	case doAcquire:
		if mutant.On(mutant.StartWithoutLease) {
			l := lease.Unguarded(s.name)
			_, _ = l.Acquire(c.life)
			s.term, _ = lease.TermOf(l)
			c.fire(s, won)
			return
		}
		c.acquire(s, func(ctx context.Context, h *lease.Handle) (bool, error) { return h.Acquire(ctx) })
	case doAdopt:
		offer := s.take.offer
		s.take.halt()
		c.acquire(s, func(ctx context.Context, h *lease.Handle) (bool, error) { return h.Adopt(ctx, offer) })
	case doOpen:
		c.open(s)
	case doInvite:
		c.invite(s)
	case dropInvite:
		c.callOff(s)
	case doDrain:
		c.drain(s)
	case doLose:
		c.lose(s)
	case forceStop:
		c.forceStop(s)
	case startYield:
		h := s.last
		s.deadline = c.clock.AfterFunc(c.ttl(s), func() { c.post(&yieldEnded{s.number, h}) })
	case doYield:
		c.yield(s)
	case doTransfer:
		c.transfer(s)
	case doRelease:
		c.loseStates(s, errNotTaken)
		h := s.handle
		s.term = nil
		c.async(func() any { return &releaseEnded{s.number, h.Release(c.life)} })
	case doOffer:
		c.makeOffer(s)
	case sendOffer:
		c.sendOffer(s)
	case sendDecline:
		if s.take.from != nil {
			c.decline(s, s.take.from, s.take.number, "it is "+s.m.phase.String())
		}
	case report:
		c.fail(s.number, "it is "+s.m.phase.String())
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
	h, err := c.keeper.Lease(s.name, c.options(metadata(c.typ.Shards, true))...)
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
		c.fire(s, notWon)
		return
	}
	s.term, _ = lease.TermOf(s.handle)
	c.fire(s, won)
}

// open lets mail through to entities, under the present term.
func (c *controller) open(s *shard) {
	states := s.take.states
	s.take.halt()
	s.take = taking{}
	t := s.term
	if !t.CheckAlive() || !c.mayHost() {
		s.cause = c.whyNot()
		h := &home{term: t, ending: true}
		s.do(func() { s.last = h })
		loseStates(s, states, errNotTaken)
		c.fire(s, lost)
		return
	}
	h := &home{term: t, states: states}
	g := &guardian{s: s, h: h}
	pid, err := c.system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return g }, actor.WithSupervisor(g)),
		c.names.process+"/"+itoa(s.number)+"-"+utoa(uint64(t.Token())))
	if err != nil { // a token is used once
		c.log.Error("a shard's guardian could not be made", zap.String("shard", s.name), zap.Error(err))
		s.do(func() { s.last = &home{term: t, ending: true} })
		c.fire(s, lost)
		return
	}
	h.guardian = pid
	s.seen = max(s.seen, t.Token())
	s.do(func() {
		s.home, s.last = h, h
		for id := range states {
			if s.entries[id] == nil {
				s.begin(id)
			}
		}
		if c, ok := t.(lease.Continuing); ok && c.Continues() != 0 {
			s.routing().Host(s.r.self, c.Continues(), true) // who routes by it is right, too
		}
		s.routing().Open(t.Token())
	})
	c.metrics.hosted.Add(c.life, 1, c.metrics.attrs)
	c.log.Info("hosting", zap.String("shard", s.name), zap.Uint64("token", uint64(t.Token())))
	c.event(Event{Kind: Hosted, Shard: s.number, Token: t.Token()})
	c.moves.add(Move{Shard: s.number, What: Hosted, Token: t.Token(), At: c.now()})
	s.recall(h)
}

func loseStates(s *shard, states map[string][]byte, why error) { s.loseStates(states, why) }

// loseStates tells of states that entities left, and that nobody gets.
func (c *controller) loseStates(s *shard, why error) { s.loseStates(s.takeBag(), why) }

// drain begins a planned end.
func (c *controller) drain(s *shard) {
	h := s.last
	s.since = c.clock.Now().Mono
	s.do(func() {
		s.home = nil
		h.pack = s.m.offer && c.set.stateLimit > 0
		s.routing().Ending()
		s.endAll(h)
	})
	s.deadline = c.clock.AfterFunc(c.set.stopWithin, func() { c.post(&deadlinePassed{s.number, h}) })
	c.remind(s, &stillRunning{s.number, h, s.since, firstReminder})
}

// lose shuts the entities of a shard off that was lost.
func (c *controller) lose(s *shard) {
	h := s.last
	cause := s.cause
	if cause == nil {
		if cause = context.Cause(s.term.Context()); cause == nil {
			cause = lease.ErrExpired
		}
	}
	halt(s.deadline)
	s.since = c.clock.Now().Mono
	s.do(func() {
		s.home = nil
		h.cause, h.pack = cause, false
		s.routing().Ending()
		s.endAll(h)
	})
	c.log.Warn("a shard was lost", zap.String("shard", s.name), zap.Uint64("token", uint64(h.term.Token())), zap.Error(cause))
	c.event(Event{Kind: Lost, Shard: s.number, Token: h.term.Token(), Reason: cause})
	c.moves.add(Move{Shard: s.number, What: Lost, Token: h.term.Token(), At: c.now(), Reason: cause.Error()})
	c.remind(s, &stillRunning{s.number, h, s.since, firstReminder})
}

// forceStop shuts entities off that did not stop in time.
func (c *controller) forceStop(s *shard) {
	s.do(func() {
		s.last.cause = ErrOverdue
		s.endAll(s.last)
	})
}

// yield gives the shard up though entities still run.
func (c *controller) yield(s *shard) {
	c.event(Event{Kind: Yielded, Shard: s.number, Token: s.last.term.Token()})
	c.log.Warn("a shard is given up though entities still run", zap.String("shard", s.name))
	h := s.handle
	c.ops.Go(func() {
		if err := h.Release(context.Background()); err != nil {
			c.log.Warn("release not confirmed, left to the keeper or the TTL", zap.String("shard", s.name), zap.Error(err))
		}
	})
	s.do(func() { s.routing().Left() })
}

// onEmpty: the entities of a home that ends are gone, and their mail is back.
func (c *controller) onEmpty(s *shard, h *home) {
	if s.last != h {
		return
	}
	halt(s.deadline)
	halt(s.reminder)
	s.do(func() {
		s.routing().Closed()
		s.last = &home{term: h.term, ending: true, told: true, bag: h.bag}
	})
	if h.guardian != nil {
		c.system.Root.Stop(h.guardian)
		c.metrics.hosted.Add(c.life, -1, c.metrics.attrs)
	}
	c.fire(s, drained)
}

func (c *controller) onReleased(s *shard, err error) {
	if err != nil {
		c.log.Warn("release not confirmed, left to the keeper or the TTL", zap.String("shard", s.name), zap.Error(err))
	}
	c.event(Event{Kind: Released, Shard: s.number, Reason: err})
	c.moves.add(Move{Shard: s.number, What: Released, At: c.now()})
	c.fire(s, released)
}

// forget ends what belonged to a hold that is over.
func (c *controller) forget(s *shard) {
	halt(s.deadline)
	halt(s.reminder)
	halt(s.inv.timer)
	s.take.halt()
	s.loseStates(s.take.states, errNotTaken)
	s.inv, s.take, s.term, s.cause = invitation{}, taking{}, nil, nil
}

// mayHost reports whether this node may host at all: it is a member, and is
// registered for the type.
func (c *controller) mayHost() bool { return c.whyNot() == nil }

// ErrNotHosting is the cause of an entity's context when its node lost its
// membership in the group, or its part in the type.
var ErrNotHosting = errors.New("the node may not host any more")

func (r *Region) whyNot() error {
	if _, ok := r.group.Term(); !ok {
		return ErrNotHosting
	}
	if t, ok := r.regionLease.Term(); !ok || !t.CheckAlive() {
		return ErrNotHosting
	}
	return nil
}

func (c *controller) onHostingLost(cause error) {
	if c.mayHost() || mutant.On(mutant.MembershipIgnored) {
		return // it has been won back already; what was hosted meanwhile was not
	}
	for i := range c.shards {
		if s := &c.shards[i]; s.m.phase.holds() {
			s.cause = cause
			c.fire(s, lost)
		}
	}
}

// onRecord takes up who holds a shard.
func (c *controller) onRecord(s *shard, msg *recordNoticed) {
	if msg.known {
		s.seen = max(s.seen, msg.record.Token)
	}
	s.do(func() { s.routing().Host(nodeOf(msg.record.Owner), msg.record.Token, msg.known) })
	c.noticeOwn(s, msg.record, msg.known)
}

func (c *controller) onPeerGone(address string) {
	if co := c.coordinator.Load(); co != nil {
		co.tell(&peerGone{address})
	}
	for i := range c.shards {
		s := &c.shards[i]
		s.do(func() {
			if s.router != nil {
				s.router.Gone(address)
			}
		})
		if (s.m.phase == Inviting || s.m.phase == Asking) && s.inv.node.GetAddress() == address {
			c.fire(s, declined)
		}
	}
}

// firstReminder is when entities that do not stop are reported first; then at
// intervals that double.
const firstReminder = 5 * time.Second

func (c *controller) remind(s *shard, r *stillRunning) {
	halt(s.reminder)
	s.reminder = c.clock.AfterFunc(r.next, func() { c.post(r) })
}

func (c *controller) onStillRunning(r *stillRunning) {
	s := &c.shards[r.shard]
	if s.last != r.h || !s.m.phase.runs() {
		return
	}
	took := c.clock.Now().Mono - r.since
	n := 0
	s.do(func() { n = len(s.entries) })
	c.log.Warn("entities do not stop", zap.String("shard", s.name), zap.Int("entities", n), zap.Duration("since", took))
	c.event(Event{Kind: NotStopping, Shard: s.number, Token: r.h.term.Token(), After: took})
	c.remind(s, &stillRunning{r.shard, r.h, r.since, min(2*r.next, time.Hour)})
}

// ttl is that of the shard's lease, as far as is known.
func (c *controller) ttl(s *shard) time.Duration {
	if rec, ok := c.table.record(s.number); ok && rec.TTL > 0 {
		return rec.TTL
	}
	return 10 * time.Second
}
