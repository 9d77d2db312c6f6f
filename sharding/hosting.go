package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
	"github.com/holdfast-go/holdfast/sharding/internal/entities"
)

// This part begins, ends and guards what a node hosts, for the control loop.

// A shard on a node:
//
//	        ordered                won
//	Away ───────────▶ Acquiring ─────────▶ Active ◀────────── declined ──┐
//	 │ ▲                                    │  │ ordered to another      │
//	 │ │ invited                       lost │  └──────────────────▶ Inviting
//	 ▼ │                                    │                            │ an offer came
//	Offering ─▶ Offered ─▶ Adopting ─▶ Active                            ▼
//	                                        │         ended, all     Draining ─too late─▶ Yielding
//	                                        ▼                            │ ended, all       │
//	                                    Stopping ─ended, all─▶ Releasing │            after a TTL
//	                                        ▲                      ▲     ▼                  │
//	                                        │                      └─ Transferring ─▶ Away  │
//	                                        └───────────────────────────────────────────────┘
//
// handover.Machine is all of it as a pure function; package entities is the same for each entity of
// a shard. A node gives a lease up only when the entities have ended, hosting.ReleaseAfterTTL
// aside (Yielding). If the offer is too old by then, it asks for a new one before it transfers the
// lease (Asking).

// hold is what a node decides about one shard. It belongs to the control loop, which feeds the
// machine with events; hold carries its effects out.
type hold struct {
	shard
	*books
	m        handover.Machine
	handle   *lease.Handle
	term     lease.Term // of the shard's lease, while it is held
	seen     lease.Token
	since    time.Duration
	closing  actors.Alarm // until the handle is closed of a shard that is away
	deadline actors.Alarm // for entities that were told to stop
	reminder actors.Alarm // of entities that do not
	inv      handover.Giving
	take     handover.Accepting
	rest     rest
	phase    atomic.Uint32 // for Info
}

// books are what the control loop keeps of all shards.
type books struct {
	*node
	parent *lease.Handle // of the shards' leases: the node's registration for the type
	busy   int           // shards that are not Away
	// entity is what an entity knows of itself.
	entity func(*shard, string, *gate.Gate) any
	// invites is the number of the last hand-over. It begins anywhere: another Region was here before.
	invites uint64

	highest   uint64      // token of a coordinator whose orders were taken
	lastOrder *wire.Order // the last that were
	obeying   bool        // and are being taken
	failed    []*wire.Failure

	leaveTrace string // of the caller of Drain or Stop, as traces.Text, while this node leaves

	sendings map[*handover.Sending]struct{} // states on their way to other nodes
	givenUp  int                            // states that were not taken, of hand-overs that are over
}

// newest is the highest token of a coordinator that this node knows, by its orders or by the
// records: it may not have ordered anything here yet.
func (b *books) newest() uint64 {
	record, _ := b.table.Coordinator()
	return max(b.highest, uint64(record.Token))
}

// fail tells the coordinator that what it ordered about a shard came to nothing.
func (b *books) fail(shard int, why string) {
	f := &wire.Failure{Shard: uint32(shard), Reason: wire.Text(why)}
	if b.obeying {
		b.failed = append(b.failed, f)
	} else if b.lastOrder != nil {
		b.report(b.lastOrder, f)
	}
}

// report tells the coordinator what of its orders came to nothing.
func (b *books) report(m *wire.Order, failures ...*wire.Failure) {
	b.send(m.From.GetAddress(), &wire.Report{Type: b.names.Key, From: b.self, Coordinator: m.Coordinator, Failures: failures})
}

// shards are those of the type, by number.
type shards []hold

// of returns the shard of an entity.
func (l shards) of(id string) *shard { return &l[ShardOf(id, len(l))].shard }

// named returns the shard whose lease has that name; nil if there is none.
func (l shards) named(name string) *hold {
	if i, ok := l[0].names.Number(name, len(l)); ok {
		return &l[i]
	}
	return nil
}

// route gives a message of another node to the Router of a shard.
func (l shards) route(m any) {
	name := m.(interface{ GetName() string }).GetName()
	s := l.named(name)
	if s == nil {
		l[0].log.Debug("a message about no shard of this type", zap.String("name", name))
		return
	}
	s.touched()
	s.do(func() { s.routing().Receive(m, 0, true) })
}

// recount counts what waits again where other nodes have taken a part of it: a shard is
// told only when they have taken all.
func (l shards) recount() {
	for i := range l {
		if s := &l[i]; s.out.Held().Load() > 0 {
			s.do(func() {})
		}
	}
}

// shut gives up all mail that is left.
func (l shards) shut() {
	for i := range l {
		s := &l[i]
		used := false // its Router and Outbox are made with the first record or message
		s.do(func() {
			if used = s.router != nil; used {
				s.router.Shut()
			}
			s.wake.Stop()
			s.direct = false
		})
		if used {
			s.out.Leave()
		}
	}
}

// futile counts the entities here that fail before their first message, unless one works.
func (l shards) futile() (failing int, works bool) {
	for i := range l {
		n, works := l[i].failing()
		if works {
			return 0, true
		}
		failing += n
	}
	return failing, false
}

// fire feeds one event to a shard's machine and carries out its effects.
func (s *hold) fire(e handover.Event) {
	was := s.m.Phase
	var effects []handover.Effect
	s.m, effects = s.m.Next(e)
	if s.m.Phase != was {
		s.log.Debug("phase", zap.String("shard", s.name), zap.Stringer("from", was), zap.Stringer("to", s.m.Phase))
	}
	switch {
	case was == handover.Away && s.m.Phase != handover.Away:
		s.busy++
	case was != handover.Away && s.m.Phase == handover.Away:
		s.busy--
	}
	s.phase.Store(uint32(s.m.Phase))
	for _, f := range effects {
		s.carryOut(f)
	}
	if s.m.Phase == handover.Away && was != handover.Away {
		s.forget()
	}
}

// lossNoticed has the loop ask the term, as the loss may be of an earlier one.
func (s *hold) lossNoticed() {
	s.post(func() {
		if s.term != nil && !s.term.CheckAlive() {
			s.fire(handover.Lost)
		}
	})
}

func (s *hold) acquire(f func(*lease.Handle, context.Context) (bool, error)) {
	h, err := s.leaseOf()
	if err != nil {
		s.post(func() { s.onAcquired(false, err) })
		return
	}
	s.async(func() func() {
		won, err := f(h, s.life)
		return func() { s.onAcquired(won, err) }
	})
}

func (s *hold) onAcquired(won bool, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		s.counts.warned.notAcquired.Warn(s.log, s.clock.Now().Mono, "a shard could not be acquired", zap.String("shard", s.name), zap.Error(err))
	}
	if !won {
		if err != nil && s.handle != nil {
			h := s.handle // what may have been applied is given back
			s.ops.Go(func() { _ = h.Release(s.life) })
		}
		s.fire(handover.NotWon)
		return
	}
	s.term, _ = lease.TermOf(s.handle)
	s.fire(handover.Won)
}

// carryOut does one effect. What takes time runs elsewhere and tells later.
func (s *hold) carryOut(f handover.Effect) {
	switch f {
	case handover.DoAcquire:
		s.acquire((*lease.Handle).Acquire)
	case handover.DoAdopt:
		adopt := s.take.Adopt(port{s}, s.counts.traces, s.handle.Adopt) // states that come until it is open are still taken
		s.acquire(func(_ *lease.Handle, ctx context.Context) (bool, error) { return adopt(ctx) })
	case handover.DoOpen:
		s.open()
	case handover.DoInvite:
		s.invite()
	case handover.AskAgain:
		s.inv.AskAgain(port{s})
	case handover.DropInvite:
		s.inv.Off(port{s})
	case handover.DoDrain:
		s.drain()
	case handover.DoLose:
		s.lose()
	case handover.ForceStop:
		s.do(func() { // entities that did not stop in time are shut off
			s.last.cause = ErrOverdue
			s.endAllLocked(s.last)
		})
	case handover.StartYield:
		s.later(&s.deadline, s.ttl(), func() { s.fire(handover.YieldOver) })
	case handover.DoYield:
		s.yield()
	case handover.DoTransfer:
		s.transfer()
	case handover.DoRelease:
		s.loseLeft(errNotTaken)
		h := s.handle
		s.term = nil
		s.async(func() func() {
			err := s.release(s.life, h)
			return func() {
				s.event(Event{Kind: Released, Shard: s.number, Reason: err})
				s.fire(handover.Released)
			}
		})
	case handover.DoOffer:
		s.take.Make(port{s})
	case handover.SendOffer:
		s.take.Send(port{s})
	case handover.SendDecline:
		s.take.Decline(port{s})
	case handover.Report:
		s.fail(s.number, "it is "+s.m.Phase.String())
	}
}

// open lets mail through to entities, under the present term.
func (s *hold) open() {
	t, states := s.term, s.begin()
	if x, ok := t.(lease.Continuing); ok && states.Len() > 0 && !x.Adopted(s.take.Offer) {
		s.loseStates(states, errNotTaken) // others may have hosted since
	}
	s.take = handover.Accepting{}
	h := &tenure{s: &s.roster, term: t, states: states}
	h.empty = func() { s.post(func() { s.onEmpty(h) }) }
	g := &guardian{noActor: noActor{s.node}, s: s, h: h}
	ok := false
	if t.CheckAlive() {
		g.pid, ok = s.system.ProcessRegistry.Add(g, fmt.Sprintf("%s/%d-%d", s.names.Process, s.number, t.Token()))
		if !ok { // a token is used once
			s.log.Error("a shard's guardian could not be made: an actor has its name", zap.String("shard", s.name),
				zap.String("name", g.pid.Id))
		}
	}
	if !ok {
		h.ending, h.states = true, nil
		s.do(func() { s.last = h })
		s.loseStates(states, errNotTaken)
		s.fire(handover.Lost)
		return
	}
	h.parent, h.start = g.pid, g.start
	s.seen = max(s.seen, t.Token())
	s.fire(handover.Opened)
	s.do(func() {
		s.last = h
		for _, id := range states.Keys() {
			if s.entries[id] == nil {
				s.beginLocked(id)
			}
		}
		if c, ok := t.(lease.Continuing); ok && c.Continues() != 0 {
			s.routing().Host(s.self, c.Continues(), true) // who routes by it is right, too
		}
		s.routing().Open(t.Token())
	})
	s.counts.hosted.Add(1)
	s.log.Info("hosting", zap.String("shard", s.name), zap.Uint64("token", uint64(t.Token())))
	s.event(Event{Kind: Hosted, Shard: s.number, Token: t.Token()})
	h.recoverAll()
}

// loseLeft reports states that entities left, and that no entity gets.
func (s *hold) loseLeft(why error) {
	if s.last != nil {
		s.loseStates(s.last.handoverStates, why)
	}
}

// drain begins a planned end.
func (s *hold) drain() {
	h := s.last
	s.since = s.clock.Now().Mono
	s.do(func() {
		h.collects = s.m.Offer && s.set.stateLimit > 0
		s.routing().Ending(false)
		s.endAllLocked(h)
	})
	s.later(&s.deadline, s.set.Stop, func() { s.fire(handover.Overdue) })
	s.remind(firstReminder)
}

// lose shuts the entities of a shard off that was lost.
func (s *hold) lose() {
	h := s.last
	cause := cmp.Or(context.Cause(s.term.Context()), lease.ErrExpired)
	if errors.Is(cause, lease.ErrParentLost) {
		cause = fmt.Errorf("%w: %w", ErrNotHosting, cause)
	}
	s.deadline.Stop()
	s.since = s.clock.Now().Mono
	s.do(func() {
		h.cause = cause
		s.routing().Ending(true)
		s.endAllLocked(h)
	})
	s.log.Warn("a shard was lost", zap.String("shard", s.name), zap.Uint64("token", uint64(h.term.Token())), zap.Error(cause))
	s.event(Event{Kind: Lost, Shard: s.number, Token: h.term.Token(), Reason: cause})
	s.remind(firstReminder)
}

// yield gives the shard up though entities still run.
func (s *hold) yield() {
	s.event(Event{Kind: Yielded, Shard: s.number, Token: s.last.term.Token()})
	s.log.Warn("a shard is given up though entities still run", zap.String("shard", s.name))
	h := s.handle
	s.ops.Go(func() { _ = s.release(context.Background(), h) })
	s.do(func() { s.routing().Left() })
}

// onEmpty: the entities of a hosting that ends are gone, and their mail is back.
func (s *hold) onEmpty(h *tenure) {
	if s.last != h {
		return
	}
	s.deadline.Stop()
	s.reminder.Stop()
	h.keepStates()
	s.do(func() {
		s.routing().Closed()
		s.last = &tenure{s: h.s, term: h.term, ending: true, told: true, handoverStates: h.handoverStates}
	})
	if h.parent != nil {
		s.system.ProcessRegistry.Remove(h.parent)
		s.counts.hosted.Add(-1)
	}
	s.fire(handover.Ended)
}

func (s *hold) release(ctx context.Context, h *lease.Handle) error {
	err := h.Release(ctx)
	if err != nil {
		s.log.Warn("release not confirmed, left to the keeper or the TTL", zap.String("shard", s.name), zap.Error(err))
	}
	return err
}

// forget ends what belonged to a hold that is over. Timers that were stopped still have what
// they were for: the hosting that is gone, and with it what is remembered of the shard.
func (s *hold) forget() {
	s.deadline.Stop()
	s.reminder.Stop()
	s.inv.Halt()
	s.loseStates(s.begin(), errNotTaken)
	s.inv, s.take, s.term = handover.Giving{}, handover.Accepting{}, nil
	s.do(func() { s.last = nil })
	s.later(&s.closing, keepHandle, s.closeHandle)
}

// onRecord notes the holder of a shard.
func (s *hold) onRecord(record lease.Record, known bool) {
	if known {
		s.seen = max(s.seen, record.Token)
	}
	node := wire.NodeOf(record.Owner)
	s.do(func() { s.routing().Host(node, record.Token, known) })
	if known {
		transport.Of(s.system).Expect(node)
	}
	if s.m.Phase == handover.Offered {
		s.take.Recorded(port{s}, record, known)
	}
}

// firstReminder is when entities that do not stop are reported first; then at
// intervals that double.
const firstReminder = 5 * time.Second

func (s *hold) remind(next time.Duration) {
	s.later(&s.reminder, next, func() {
		took := s.clock.Now().Mono - s.since
		n := 0
		s.do(func() { n = len(s.entries) })
		s.log.Warn("entities do not stop", zap.String("shard", s.name), zap.Int("entities", n), zap.Duration("since", took))
		s.event(Event{Kind: NotStopping, Shard: s.number, Token: s.last.term.Token(), After: took})
		s.remind(min(2*next, time.Hour))
	})
}

// ttl is that of the shard's lease, as far as is known.
func (s *hold) ttl() time.Duration {
	rec, _ := s.table.Record(s.number)
	return cmp.Or(max(0, rec.TTL), s.leaseTTL())
}

// leaseOf returns the handle of the shard's lease. It hangs on the node's registration for the
// type, and that on its membership: with either, this node has lost all its shards.
func (s *hold) leaseOf() (*lease.Handle, error) {
	if s.handle != nil {
		return s.handle, nil
	}
	h, err := s.keeper.Lease(s.name, append(s.options(directory.Metadata(s.typ.Shards, true)), lease.WithParent(s.parent))...)
	if err != nil {
		return nil, err
	}
	h.OnLost(func(lease.Loss) { s.lossNoticed() })
	s.handle = h
	return h, nil
}

// keepHandle is for how long the handle of a shard's lease is kept that is away: the shard may come
// back, and what was asked for under it ends meanwhile. Then it is closed: else a node would keep those
// of all shards that it has ever hosted.
const keepHandle = time.Minute

// closeHandle closes the handle of a shard that is away.
func (s *hold) closeHandle() {
	if h := s.handle; h != nil && s.m.Phase == handover.Away {
		s.handle = nil
		s.closing.Stop()
		s.ops.Go(func() { _ = h.Close(context.Background()) }) // bounded by the lease's own bounds
	}
}

// closeHandles closes those of all shards that are away, side by side: each may take as long as the
// store is away.
func (l shards) closeHandles() {
	for i := range l {
		l[i].closeHandle()
	}
}

// guardian is the parent of a shard's entities on this node under one term. It is no
// actor: who knows its name can't end it, and its children can tell it of their failures
// for as long as they live, or that would be a dead letter in the midst of a failure.
//
// Its children are named by their escaped ids. Each is made on a goroutine of its own:
// what the user's Props do may take its time, or hang, and the others do not wait for it.
type guardian struct {
	noActor
	s   *hold
	h   *tenure
	pid *actor.PID
}

// SendUserMessage implements actor.Process: no message is for it.
func (g *guardian) SendUserMessage(pid *actor.PID, message any) {
	g.deadLetter(pid, message)
}

// SendSystemMessage implements actor.Process. It runs on the goroutine of an entity that
// has failed, or ended.
func (g *guardian) SendSystemMessage(pid *actor.PID, message any) {
	defer boundary.Survive(g.log, failedHere)
	switch m := message.(type) {
	case *actor.Failure:
		g.failed(m.Who, m.Reason)
	case *actor.Terminated: // its gate tells
	default:
		g.noActor.SendSystemMessage(pid, message)
	}
}

// failedHere is the line of a panic that is contained.
const failedHere = "a shard's guardian panicked"

// start makes the actor of e, if that is still wanted.
func (g *guardian) start(e *entry) {
	defer boundary.Survive(g.log, failedHere)
	s := g.s
	wanted, has := false, false
	s.do(func() {
		wanted = s.entries[e.id] == e && slices.Contains(s.happensLocked(e, entities.Due), entities.MakeGate)
		has = wanted && g.h.states.Has(e.id)
	})
	if !wanted {
		return
	}
	gt, err := g.gateFor(e, has)
	s.do(func() {
		if err != nil {
			s.sayLocked(e, "an entity could not be made", err)
			s.endedLocked(e, entities.NotMade)
			return
		}
		e.gate, e.since = gt, s.Now()
		wanted = slices.Contains(s.happensLocked(e, entities.GateMade), entities.Spawn)
	})
	if err != nil || !wanted {
		return
	}
	s.counts.active.Add(1)
	g.made(e, gt, g.spawn(e, gt))
}

// made: what was to make the actor of e has returned.
func (g *guardian) made(e *entry, gt *gate.Gate, err error) {
	defer boundary.Survive(g.log, failedHere)
	s, pid := g.s, gt.Actor()
	s.do(func() {
		if pid != nil && err != nil && !e.GivenUp {
			g.s.sayLocked(e, "an entity's Props failed: it is stopped", err)
		}
		switch {
		case e.GivenUp:
			s.counts.active.Add(-1)
			s.happensLocked(e, entities.Made)
		case pid == nil:
			s.counts.active.Add(-1)
			g.s.sayLocked(e, "an entity could not be made", err)
			s.endedLocked(e, entities.NotMade)
		case e.gate != gt: // that life is over already
			if err != nil {
				s.after = append(s.after, gt.Stop)
			}
		default:
			// A copy: what a PID was used for keeps the actor in memory.
			e.pid = actor.NewPID(pid.Address, pid.Id)
			if err == nil {
				s.happensLocked(e, entities.Made)
			} else {
				s.happensLocked(e, entities.MadeBadly)
			}
		}
	})
	s.evictIfMany()
}

// gateFor makes the gate of e's next life.
func (g *guardian) gateFor(e *entry, has bool) (gt *gate.Gate, err error) {
	s := g.s
	opts := gate.Options{
		Term:     g.h.term,
		Divert:   func(env any) { s.diverted(e, gt, env) },
		Internal: func(env any) { s.deadLetter(s.pid, env) },
		OnLost:   func(error) { s.lossNoticed() },
		OnDone:   func() { s.collect(e, gt) },
		OnEnd:    func(a actor.Actor, lost bool) { g.h.leaveState(e, a, lost) },
		Journal:  s.set.journal,
	}
	if has {
		opts.OnStart = func(a actor.Actor) error { return g.h.restoreState(e, a) }
	}
	return gate.New(opts)
}

// spawn makes the actor of e behind gt.
func (g *guardian) spawn(e *entry, gt *gate.Gate) error {
	gt.Self = g.s.entity(&g.s.shard, e.id, gt)
	return gt.Spawn(g.system, g.pid, g.pid.Id+"/"+url.PathEscape(e.id), g.crowd.props)
}

// failed has an entity end that has panicked; starting it again is its entry's business.
func (g *guardian) failed(child *actor.PID, reason any) {
	defer g.stopActor(child)
	name := child.Id[strings.LastIndexByte(child.Id, '/')+1:]
	if id, err := url.PathUnescape(name); err == nil {
		g.s.do(func() {
			if e := g.s.entries[id]; e != nil {
				g.s.happensLocked(e, entities.Panicked)
			}
		})
		g.crashed(g.s.number, id, reason)
	}
}
