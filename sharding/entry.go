package sharding

import (
	"errors"
	mrand "math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/outside"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/internal/wire"
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
// While it is being made it is given up (giveUp) if its shard is not to wait any longer.
//
// All of it is guarded by the shard's mu but used.
type entry struct {
	id      string
	state   entryState
	crashed bool
	leaves  bool // it asked to be stopped
	hasty   bool // it ended itself and had taken nothing: it would again, at once
	dropped bool // it was given up while its actor was being made, and is nobody's any more
	panics  uint8
	used    atomic.Uint32 // the Region's epoch
	gate    *gate.Gate
	pid     *actor.PID
	since   time.Duration // when its actor was made
	pending []any         // came while it was not active
	back    []any         // what its mailbox had left
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
func (s *shard) handOver(m *mail, custody bool) {
	e := s.entries[m.id]
	switch {
	case (e == nil || e.state != active) && s.full(custody):
		s.Drop(&route.Item{Local: m}, "as much waits on this node as may")
	case e == nil:
		e = s.begin(m.id)
		s.pend(e, m.envelope)
	case e.state == active:
		s.use(e)
		e.gate.Post(m.envelope)
	case !custody && (s.pending >= s.r.set.buffer && len(e.pending) >= s.share() || s.pendingBytes >= s.r.set.bufferBytes),
		custody && s.pendingBytes >= maxCustody:
		s.overflow(e, m)
	default:
		s.pend(e, m.envelope)
	}
}

// pend has messages wait for their entity.
func (s *shard) pend(e *entry, envelopes ...any) {
	e.pending = append(e.pending, envelopes...)
	s.pending += len(envelopes)
	for _, env := range envelopes {
		s.pendingBytes += wire.Footprint(env)
	}
}

// unpend takes what waits for an entity.
func (s *shard) unpend(e *entry) (envelopes []any) {
	envelopes, e.pending = e.pending, nil
	s.pending -= len(envelopes)
	for _, env := range envelopes {
		s.pendingBytes -= wire.Footprint(env)
	}
	if s.pending == 0 {
		s.pendingBytes = 0 // what waits may have changed under its sender's hands
	}
	return envelopes
}

// share is how many messages may wait for an entity though as many wait for others of
// its shard as may: so that one which crashes again and again, or does not start, leaves
// room for the others. In all they are bounded by the node's total.
func (s *shard) share() int { return max(1, s.r.set.buffer/shares) }

const shares = 20

// custodyTotal is how many times the bound in all may wait with what was handed to this
// node: it had been accepted where it was.
const custodyTotal = 4

// full is Region.full as seen by a message of this shard, which has been counted
// since it came if it waited: that it did must not keep it out now.
func (s *shard) full(custody bool) bool {
	st, most := s.routing().Stats(), int64(s.r.set.total)
	if custody {
		most *= custodyTotal
	}
	elsewhere := s.r.waiting.Load() - int64(s.waiting)
	return elsewhere+int64(st.Buffered+s.pending)+s.out.Held().Load() >= most
}

// overflow: there is no room for what waits for an entity.
func (s *shard) overflow(e *entry, m *mail) {
	if s.r.set.policy == DropOldest && len(e.pending) > 0 {
		old := e.pending[0]
		e.pending = append(e.pending[1:], m.envelope)
		s.pendingBytes += wire.Footprint(m.envelope) - wire.Footprint(old)
		m = &mail{m.id, old}
	}
	s.Drop(&route.Item{Local: m}, "too much waits for entities of the shard to start")
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
	go s.last.guardian.start(e)
}

// flushMark is posted behind an entity's mail when it is done: when it comes back
// diverted, so has everything before it.
type flushMark struct{}

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
			s.collected(e, g)
		default:
			e.back = append(e.back, env)
		}
	})
}

// collect begins to take the backlog of an entity that is done; on its goroutine.
func (s *shard) collect(e *entry, g *gate.Gate) {
	s.do(func() {
		if s.entries[e.id] == e && e.gate == g {
			e.hasty = (e.state < stopping || e.leaves) && g.Counters().Passed == 1 // Started
			e.state = collecting
		}
	})
	if !g.Post(&flushMark{}) {
		// It ended while it was being made: there is no way yet by which mail could
		// have come to it.
		s.do(func() { s.collected(e, g) })
	}
}

// collected: the mail of an entity that is done is back.
func (s *shard) collected(e *entry, g *gate.Gate) {
	if s.entries[e.id] == e && e.gate == g {
		s.after = append(s.after, func() { s.r.overran(g.Counters().Overruns) })
		s.r.active.Add(-1)
		s.ended(e)
	}
}

// ended: the actor is gone, and its mail is back.
func (s *shard) ended(e *entry) {
	mails := append(e.back, s.unpend(e)...)
	e.back, e.gate, e.pid = nil, nil, nil
	halt(e.timer)
	h := s.last
	if h == nil || h.ending {
		s.giveBack(e, mails)
		return
	}
	switch {
	case len(mails) == 0 && s.r.set.store != nil && !h.rem.known[e.id]: // forgotten
		delete(s.entries, e.id)
	case e.crashed, e.hasty && len(mails) > 0:
		e.state = backoff
		s.pend(e, mails...)
		if s.Now()-e.since >= s.r.set.backoffMax {
			e.panics = 0
		}
		d := pause(int(e.panics), s.r.set.backoffMin, s.r.set.backoffMax)
		e.panics = min(e.panics+1, 30)
		e.timer = s.r.clock.AfterFunc(d, func() {
			s.do(func() {
				if s.entries[e.id] == e && e.state == backoff && s.note(e) {
					s.start(e)
				}
			})
		})
	case len(mails) > 0:
		s.pend(e, mails...)
		if s.note(e) {
			s.start(e)
		}
	default:
		delete(s.entries, e.id)
		if s.r.set.recallActive {
			s.unremember(h, e.id)
		}
	}
}

// giveBack ends the entry of a shard that ends; its mail goes to the next host.
func (s *shard) giveBack(e *entry, mails []any) {
	delete(s.entries, e.id)
	for _, env := range mails {
		s.routing().Back(s.item(&mail{e.id, env}))
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
		s.stop(e, h.cause == nil)
	case stopping, collecting:
		if h.cause != nil && e.gate != nil && e.pid != nil {
			s.shutOff(e, h.cause)
			s.r.stopActor(e.pid)
		}
	case making: // started does the rest, unless that is not waited for
		if h.cause != nil && e.gate != nil {
			s.shutOff(e, h.cause)
			h.guardian.giveUp(e)
		}
	case noting, starting, backoff:
		halt(e.timer)
		s.giveBack(e, s.unpend(e))
	}
}

// shutOffAll closes the gates of all entities to everything, also while an entity is being made.
func (s *shard) shutOffAll(cause error) {
	for _, e := range s.entries {
		if e.gate != nil {
			e.gate.Lose(cause)
		}
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

// stop tells an entity to stop, in the way its user chose. That is asked on a goroutine
// of its own, as it may take its time: the entity has until its deadline.
func (s *shard) stop(e *entry, planned bool) {
	if !planned || s.r.set.stopWith == nil {
		s.r.stopActor(e.pid)
		return
	}
	pid, g := e.pid, e.gate
	outside.Aside(func() (any, error) { return s.r.set.stopWith(), nil }, func(msg any, err error) {
		if err != nil {
			s.r.log.Error("WithStop's function failed: the entity is stopped at once", zap.Error(err))
		}
		s.do(func() {
			switch {
			case s.entries[e.id] != e || e.gate != g: // it has ended, and its next life has its name
			case msg == nil:
				s.r.stopActor(pid)
			default:
				s.r.reach(pid, func(p actor.Process) { p.SendUserMessage(pid, msg) })
			}
		})
	})
}

// reach has f called with the process of an actor of this node; of one that has ended
// there is no word, and no dead letter: subscribers would hear of that on this goroutine.
func (r *Region) reach(pid *actor.PID, f func(actor.Process)) {
	if p, ok := r.system.ProcessRegistry.Get(pid); ok {
		_ = outside.Call(func() error { f(p); return nil }) // its dispatcher is the user's
	}
}

// stopActor stops an actor of this node, unless it has ended.
func (r *Region) stopActor(pid *actor.PID) {
	r.reach(pid, func(p actor.Process) { p.Stop(pid) })
}

// passivate stops the entity behind g.
func (s *shard) passivate(id string, g *gate.Gate) {
	s.do(func() {
		e := s.entries[id]
		switch {
		case e == nil || e.gate != g:
		case e.state == active:
			e.leaves = true
			s.putAway(e)
		case e.state == making: // it may run already
			e.leaves = true
		}
	})
}

// putAway passivates an active entity. One that does not stop by the deadline is
// shut off.
func (s *shard) putAway(e *entry) {
	e.state = stopping
	e.gate.Drain()
	s.stop(e, true)
	g := e.gate
	e.timer = s.r.clock.AfterFunc(s.r.set.stopWithin, func() {
		overdue := false
		s.do(func() {
			if overdue = s.entries[e.id] == e && e.gate == g && e.state == stopping; overdue {
				g.Lose(ErrOverdue)
				s.r.stopActor(e.pid)
			}
		})
		if overdue {
			s.r.event(Event{Kind: NotStopping, Shard: s.number, ID: e.id, Token: g.Token(), After: s.r.set.stopWithin})
		}
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
