package sharding

import (
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/lease"
)

// entry is one entity of a shard that is hosted here.
//
//	       remembered            spawned
//	noting ──────────▶ starting, making ─▶ active ──passivated, shard ends──▶ stopping ──▶ collecting
//	                      ▲  ▲                └────── ended by itself ────────────────────────▲ │
//	                      │  └── backoff ◀── panicked ──────────────────────────────────────────┤
//	                      └───────────────── mail came meanwhile ───────────────────────────────┤
//	                                                                               none: gone ◀─┘
//
// All of it is guarded by the shard's mu but used.
type entry struct {
	id      string
	state   entryState
	crashed bool
	panics  uint8
	used    atomic.Uint32 // the Region's epoch
	gate    *gate.Gate
	pid     *actor.PID
	since   time.Duration
	pending []any // came while it was not active
	back    []any // what its mailbox had left
	timer   lease.Timer
}

type entryState uint8

const (
	noting     entryState = iota // its id is being written to the store of remembered entities
	starting                     // its actor is about to be made
	making                       // it is being made, and may run already
	active                       // mail goes to its actor
	stopping                     // its actor was told to stop
	collecting                   // its actor has ended; its mail is coming back
	backoff                      // until it is started again
)

// handOver gives a message to its entity, starting it if need be. The shard is
// open, or the message waits in the entry until it is given back.
func (s *shard) handOver(m *mail) {
	e := s.entries[m.id]
	switch {
	case (e == nil || e.state != active) && s.r.full():
		s.Drop(route.Item{Local: m})
	case e == nil:
		e = s.begin(m.id)
		e.pending = append(e.pending, m.envelope)
		s.pending++
	case e.state == active:
		s.use(e)
		e.gate.Post(m.envelope)
	case s.pending >= s.r.set.buffer:
		s.overflow(e, m)
	default:
		e.pending = append(e.pending, m.envelope)
		s.pending++
	}
}

// overflow: there is no room for what waits for an entity.
func (s *shard) overflow(e *entry, m *mail) {
	if s.r.set.policy == DropOldest && len(e.pending) > 0 {
		old := e.pending[0]
		e.pending = append(e.pending[1:], m.envelope)
		m = &mail{m.id, old}
	}
	s.Drop(route.Item{Local: m})
}

func (s *shard) use(e *entry) {
	if now := s.r.epoch.Load(); e.used.Load() != now {
		e.used.Store(now)
	}
}

// begin makes an entry whose actor is about to be made.
func (s *shard) begin(id string) *entry {
	e := &entry{id: id, state: starting}
	if s.entries == nil {
		s.entries = map[string]*entry{}
	}
	s.entries[id] = e
	s.use(e)
	if s.note(e) {
		s.start(e)
	}
	return e
}

// start has the guardian make the actor.
func (s *shard) start(e *entry) {
	e.state = starting
	s.r.system.Root.Send(s.last.guardian, &startEntity{e})
}

// startEntity is what a shard tells its guardian.
type startEntity struct{ e *entry }

// flushMark is posted behind an entity's mail when it is done: when it comes back
// diverted, so has everything before it.
type flushMark struct{}

// guardian is the parent of a shard's entities on this node under one term. Its
// children are named by their escaped ids.
type guardian struct {
	s *shard
	h *home
}

// Receive implements actor.Actor.
func (g *guardian) Receive(ctx actor.Context) {
	defer func() {
		if p := recover(); p != nil {
			g.s.r.log.Error("a shard's guardian panicked", zap.Any("panic", p), zap.Stack("stack"))
		}
	}()
	if m, ok := ctx.Message().(*startEntity); ok {
		g.start(ctx, m.e)
	}
}

// start makes the actor of e, if that is still wanted.
func (g *guardian) start(ctx actor.Context, e *entry) {
	s := g.s
	wanted, state, has := false, []byte(nil), false
	s.do(func() {
		wanted = s.entries[e.id] == e && e.state == starting && !g.h.ending
		if !wanted {
			return
		}
		e.state = making
		if state, has = g.h.states[e.id]; has {
			delete(g.h.states, e.id)
		}
	})
	if !wanted {
		return
	}
	gt, err := g.gateFor(e, state, has)
	if err == nil {
		s.do(func() { e.gate, e.crashed = gt, false })
		s.r.active.Add(1)
		var pid *actor.PID
		if pid, err = g.spawn(ctx, e, gt); err == nil {
			s.do(func() { g.started(e, gt, pid) })
			s.r.tooMany()
			return
		}
		s.r.active.Add(-1)
	}
	s.r.log.Error("an entity could not be made", zap.String("shard", s.name), zap.String("id", e.id), zap.Error(err))
	s.do(func() {
		e.crashed = true
		s.ended(e)
	})
}

// started: the actor of e was made; it may have ended since.
func (g *guardian) started(e *entry, gt *gate.Gate, pid *actor.PID) {
	s := g.s
	if e.gate != gt {
		return
	}
	e.pid, e.since = pid, s.Now()
	if e.state != making {
		return
	}
	e.state = active
	s.pending -= len(e.pending)
	for _, env := range e.pending {
		gt.Post(env)
	}
	e.pending = nil
	if g.h.ending {
		s.end(e, g.h)
	}
}

// gateFor makes the gate of e's next life.
func (g *guardian) gateFor(e *entry, state []byte, has bool) (gt *gate.Gate, err error) {
	s := g.s
	opts := gate.Options{
		Term:     g.h.term,
		Divert:   func(env any) { s.diverted(e, gt, env) },
		Internal: func(env any) { s.r.system.DeadLetter.SendUserMessage(s.r.pid, env) },
		OnLost:   func(error) { s.r.post(&lossNoticed{s.number}) },
		OnDone:   func() { s.collect(e, gt) },
		OnEnd:    func(a actor.Actor) { s.leaveState(e, g.h, a) },
		Journal:  s.r.set.journal,
	}
	if has {
		opts.OnStart = func(a actor.Actor) error { return s.restoreState(e, a, state) }
	}
	return gate.New(opts)
}

// spawn makes the actor of e behind gt.
func (g *guardian) spawn(ctx actor.Context, e *entry, gt *gate.Gate) (pid *actor.PID, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its Props panicked: %v", p)
		}
		if err != nil {
			gt.Close()
		}
	}()
	self := &Entity{s: g.s, id: e.id, g: gt}
	props := gt.Props(g.s.r.props).Configure(actor.WithOnInit(func(ctx actor.Context) { ctx.Set(self) }))
	return ctx.SpawnNamed(props, url.PathEscape(e.id))
}

// HandleFailure implements actor.SupervisorStrategy: an entity that panics ends;
// starting it anew is its entry's business.
func (g *guardian) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	name := child.Id[strings.LastIndexByte(child.Id, '/')+1:]
	if id, err := url.PathUnescape(name); err == nil {
		g.s.do(func() {
			if e := g.s.entries[id]; e != nil {
				e.crashed = true
			}
		})
		g.s.r.crashed(g.s.number, id, reason)
	}
	sup.StopChildren(child)
}

// diverted takes what an entity did not handle any more; on its goroutine.
func (s *shard) diverted(e *entry, g *gate.Gate, env any) {
	s.do(func() {
		_, mark := env.(*flushMark)
		switch {
		case s.entries[e.id] != e || e.gate != g: // none is expected, and none is lost
			if !mark {
				s.accept(&mail{e.id, env})
			}
		case mark:
			s.r.overran(g.Counters().Overruns)
			s.r.active.Add(-1)
			s.ended(e)
		default:
			e.back = append(e.back, env)
		}
	})
}

// collect begins to take the backlog of an entity that is done; on its goroutine.
func (s *shard) collect(e *entry, g *gate.Gate) {
	s.do(func() {
		if s.entries[e.id] == e && e.gate == g {
			e.state = collecting
		}
	})
	g.Post(&flushMark{})
}

// ended: the actor is gone, and its mail is back.
func (s *shard) ended(e *entry) {
	mails := append(e.back, e.pending...)
	s.pending -= len(e.pending)
	e.back, e.pending, e.gate, e.pid = nil, nil, nil, nil
	halt(e.timer)
	if h := s.last; h == nil || h.ending {
		s.giveBack(e, mails)
		return
	}
	switch {
	case e.crashed:
		e.state, e.pending = backoff, mails
		s.pending += len(mails)
		if s.Now()-e.since >= s.r.set.backoffMax {
			e.panics = 0
		}
		d := pause(int(e.panics), s.r.set.backoffMin, s.r.set.backoffMax)
		e.panics = min(e.panics+1, 30)
		e.timer = s.r.clock.AfterFunc(d, func() {
			s.do(func() {
				if s.entries[e.id] == e && e.state == backoff {
					s.start(e)
				}
			})
		})
	case len(mails) > 0:
		e.pending = mails
		s.pending += len(mails)
		if s.note(e) {
			s.start(e)
		}
	default:
		delete(s.entries, e.id)
	}
}

// giveBack ends the entry of a shard that ends; its mail goes to the next host.
func (s *shard) giveBack(e *entry, mails []any) {
	delete(s.entries, e.id)
	for _, env := range mails {
		s.routing().Back(&mail{e.id, env})
	}
}

// endAll tells every entity to stop: planned, or because the shard was lost.
func (s *shard) endAll(h *home) {
	h.ending = true
	for _, e := range s.entries {
		s.end(e, h)
	}
}

// end tells an entity of a home that ends to stop.
func (s *shard) end(e *entry, h *home) {
	switch e.state {
	case active:
		e.state = stopping
		s.shutOff(e, h.cause)
		s.stopActor(e, h.cause == nil)
	case stopping, collecting:
		if h.cause != nil && e.gate != nil && e.pid != nil {
			s.shutOff(e, h.cause)
			s.r.system.Root.Stop(e.pid)
		}
	case making: // started does it
	case noting, starting, backoff:
		halt(e.timer)
		mails := e.pending
		s.pending -= len(mails)
		e.pending = nil
		s.giveBack(e, mails)
	}
}

// shutOff closes the gate: to what comes, or to everything.
func (s *shard) shutOff(e *entry, cause error) {
	if cause != nil {
		e.gate.Lose(cause)
		return
	}
	e.gate.Drain()
}

// stopActor tells an entity to stop, in the way its user chose.
func (s *shard) stopActor(e *entry, planned bool) {
	if planned && s.r.set.stopWith != nil {
		if msg := s.r.stopMessage(); msg != nil {
			s.r.system.Root.Send(e.pid, msg)
			return
		}
	}
	s.r.system.Root.Stop(e.pid)
}

// passivate stops the entity behind g.
func (s *shard) passivate(id string, g *gate.Gate) {
	s.do(func() {
		if e := s.entries[id]; e != nil && e.gate == g && e.state == active {
			s.putAway(e)
		}
	})
}

// putAway passivates an active entity. One that does not stop by the deadline is
// shut off.
func (s *shard) putAway(e *entry) {
	e.state = stopping
	e.gate.Drain()
	s.stopActor(e, true)
	g := e.gate
	e.timer = s.r.clock.AfterFunc(s.r.set.stopWithin, func() {
		s.do(func() {
			if s.entries[e.id] == e && e.gate == g && e.state == stopping {
				g.Lose(ErrOverdue)
				s.r.system.Root.Stop(e.pid)
			}
		})
	})
}

// ErrOverdue is the cause of an entity's context that did not stop by its deadline
// (WithStop).
var ErrOverdue = errors.New("the entity did not stop in time")

// pause is the jittered exponential backoff after n tries.
func pause(n int, least, most time.Duration) time.Duration {
	d := most
	if n < 30 && least<<n < d {
		d = least << n
	}
	return d/2 + time.Duration(mrand.Int64N(int64(d/2)+1))
}
