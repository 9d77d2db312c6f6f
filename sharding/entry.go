package sharding

import (
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/entities"
)

// entry is one entity of a shard that is hosted here. What becomes of it is decided by its
// Life (internal/entities), which has the diagram; this file carries that out.
//
// All of it is guarded by the shard's mu but used.
type entry struct {
	entities.Life
	id      string
	used    atomic.Uint32 // the Region's epoch
	gate    *gate.Gate
	pid     *actor.PID
	since   time.Duration // when its actor was made
	pending []any         // came while it was not active
	back    []any         // what its mailbox had left
	timer   actors.Alarm
}

// tenure is a shard's life on this node under one term.
type tenure struct {
	s      *roster
	term   lease.Term
	parent *actor.PID       // of its entities
	start  func(*entry)     // makes the actor of one
	empty  func()           // has the control loop go on: all have ended
	ending bool             // its entities were told to stop
	cause  error            // why it was lost
	told   bool             // that it is empty
	states *handover.States // that entities are to begin with
	rem    remembered

	collects       bool // entities leave their state
	handoverStates *handover.States
	unasked        int // entities that have ended were not asked for theirs, as no node takes over
}

// remembered is what one shard's hosting knows of the store. It is guarded by the
// shard's mu.
type remembered struct {
	known   map[string]bool // ids that are in the store
	loaded  bool
	add     []string // to be written
	remove  []string
	writing bool
	leaving bool // what is being written is a removal

	failure error // of the last call, which is repeated; nil: it did not fail
}

// roster is the entities of a shard.
type roster struct {
	mailroom
	entries      map[string]*entry
	last         *tenure // where entities run, until all have ended
	pending      int     // messages that wait for an entity to start
	pendingBytes int     // about
}

// handOverLocked gives a message to its entity, starting it if need be. The shard is
// open, or the message waits in the entry until it is given back.
func (s *roster) handOverLocked(m *mail, custody bool) {
	e := s.entries[m.id]
	switch {
	case (e == nil || e.Phase != entities.Active) && s.fullLocked(custody):
		s.Drop(&route.Item{Local: m}, "as much waits on this node as may")
	case e == nil:
		e = s.beginLocked(m.id)
		s.pendLocked(e, m.envelope)
	case e.Phase == entities.Active:
		s.give(e, m.envelope)
	case !custody && s.pending >= s.set.mail.Limit && len(e.pending) >= max(1, s.set.mail.Limit/shares),
		!custody && s.pendingBytes >= maxBuffered,
		custody && s.pendingBytes >= maxCustody:
		s.overflowLocked(e, m)
	default:
		s.pendLocked(e, m.envelope)
	}
}

// pendLocked has messages wait for their entity.
func (s *roster) pendLocked(e *entry, envelopes ...any) {
	e.pending = append(e.pending, envelopes...)
	s.pending += len(envelopes)
	for _, env := range envelopes {
		s.pendingBytes += actors.Footprint(env)
	}
}

// unpendLocked takes what waits for an entity.
func (s *roster) unpendLocked(e *entry) (envelopes []any) {
	envelopes, e.pending = e.pending, nil
	s.pending -= len(envelopes)
	for _, env := range envelopes {
		s.pendingBytes -= actors.Footprint(env)
	}
	if s.pending == 0 {
		s.pendingBytes = 0 // what waits may have changed under its sender's hands
	}
	return envelopes
}

// shares is the part of a shard's bound that may wait for one entity though as much waits for
// others as may: so that one which crashes again and again, or does not start, leaves room for the
// others. In all they are bounded by the node's total.
const shares = 20

// fullLocked is node.full as seen by a message of this shard, which has been counted
// since it came if it waited: that it did must not keep it out now.
func (s *roster) fullLocked(custody bool) bool {
	st, most := s.routing().Stats(), int64(s.set.total)
	if custody {
		most *= custodyTotal
	}
	elsewhere := s.counts.waiting.Load() - int64(s.waits)
	return elsewhere+int64(st.Buffered+s.pending)+s.out.Held().Load() >= most
}

// overflowLocked: there is no room for what waits for an entity.
func (s *roster) overflowLocked(e *entry, m *mail) {
	if s.set.mail.Policy == hosting.DropOldest && len(e.pending) > 0 {
		old := e.pending[0]
		e.pending = append(e.pending[1:], m.envelope)
		s.pendingBytes += actors.Footprint(m.envelope) - actors.Footprint(old)
		m = &mail{m.id, old}
	}
	s.Drop(&route.Item{Local: m}, "too much waits for entities of the shard to start")
}

// give posts a message to an entity that is active, with mu held, for reading at least: its
// gate is plain, so that no users' code runs.
func (s *roster) give(e *entry, envelope any) {
	s.use(e)
	e.gate.Post(envelope)
}

func (s *roster) use(e *entry) {
	if now := s.crowd.epoch.Load(); e.used.Load() != now {
		e.used.Store(now)
	}
}

// beginLocked makes an entry whose actor is about to be made.
func (s *roster) beginLocked(id string) *entry {
	e := &entry{id: id}
	if s.entries == nil {
		s.entries = map[string]*entry{}
	}
	s.entries[id] = e
	s.use(e)
	var effects []entities.Effect
	e.Life, effects = entities.Begin(s.nowOfLocked(e))
	s.carryOutLocked(e, effects)
	return e
}

// nowOfLocked is how things stand for an entity.
func (s *roster) nowOfLocked(e *entry) entities.Now {
	now := entities.Now{Mail: len(e.pending)+len(e.back) > 0,
		Long: s.Now()-e.since >= s.set.backoffMax}
	h := s.last
	if now.Ending = h == nil || h.ending; h != nil {
		now.Lost, now.Barred = h.cause != nil, !h.term.CheckAlive()
		if s.set.store != nil {
			now.Forgotten = !h.rem.known[e.id]
			now.Unwritten = !h.rem.loaded || now.Forgotten
		}
	}
	if e.gate != nil {
		if now.Lost {
			e.gate.Lose(h.cause) // before the look: an actor that it does not see begins no more
		}
		now.Actor, now.Unused = e.gate.Actor() != nil, !e.gate.Used()
	}
	return now
}

// happensLocked feeds one event to an entity, and carries out its effects, which it returns.
func (s *roster) happensLocked(e *entry, ev entities.Event) []entities.Effect {
	var effects []entities.Effect
	e.Life, effects = e.Next(ev, s.nowOfLocked(e))
	s.carryOutLocked(e, effects)
	return effects
}

func (s *roster) carryOutLocked(e *entry, effects []entities.Effect) {
	for _, f := range effects {
		s.effectLocked(e, f)
	}
}

// effectLocked does one effect. What runs users' code runs elsewhere, or once mu is free.
func (s *roster) effectLocked(e *entry, f entities.Effect) {
	h := s.last
	switch f {
	case entities.Remember:
		h.noteLocked(e.id)
	case entities.Make:
		go h.start(e)
	case entities.MakeGate, entities.Spawn: // the guardian's, which asked
	case entities.Deliver:
		s.use(e) // it has just begun, however long its mail has waited
		for _, env := range s.unpendLocked(e) {
			if left, ok := wire.PatienceOf(s.system, actor.UnwrapEnvelopeSender(env)); ok && left == 0 {
				s.Refuse(&route.Item{Local: &mail{e.id, env}}, wire.Reason_REASON_EXPIRED, "the asker does not wait any more")
				continue
			}
			s.give(e, env)
		}
	case entities.Drain:
		e.gate.Drain()
	case entities.Lose:
		e.gate.Lose(h.cause)
	case entities.LoseLate:
		e.gate.Lose(ErrOverdue)
	case entities.StopGently:
		s.stopLocked(e)
	case entities.StopNow:
		s.stopActor(e.pid)
	case entities.StopMade:
		s.after = append(s.after, e.gate.Stop)
	case entities.Await: // its deadline
		e.timer.Set(s.clock, s.do, s.set.Stop, func() { s.happensLocked(e, entities.Overdue) })
	case entities.TellLate:
		late := Event{Kind: NotStopping, Shard: s.number, ID: e.id, Token: e.gate.Token(), After: s.set.Stop}
		s.after = append(s.after, func() { s.event(late) })
	case entities.GiveUp:
		e.gate.Close()
		if pid := e.gate.Actor(); pid != nil {
			e.pid = actor.NewPID(pid.Address, pid.Id)
		}
		s.sayLocked(e, "an entity is given up that was being made", h.cause)
	case entities.Pause:
		d := actors.Backoff(int(e.Tries)-1, s.set.backoffMin, s.set.backoffMax)
		e.timer.Set(s.clock, s.do, d, func() { s.happensLocked(e, entities.BackedOff) })
		if e.failsEarly() {
			s.crowd.fails.Store(true)
			s.after = append(s.after, func() { s.post(func() {}) })
		}
	case entities.Requeue: // its mail goes to the next host
		s.removeLocked(e)
		mails := append(e.back, s.unpendLocked(e)...)
		e.back = nil
		for _, env := range mails {
			s.routing().Back(s.item(&mail{e.id, env}))
		}
	case entities.Remove:
		s.removeLocked(e)
	}
}

// sayLocked logs what became of e, once the shard is not locked any more.
func (s *roster) sayLocked(e *entry, what string, err error) {
	s.after = append(s.after, func() {
		s.log.Error(what, zap.String("shard", s.name), zap.String("id", e.id), zap.Error(err))
	})
}

// diverted takes what an entity did not handle any more; on its goroutine.
func (s *roster) diverted(e *entry, g *gate.Gate, env any) {
	s.do(func() {
		if s.entries[e.id] == e && e.gate == g {
			e.back = append(e.back, env)
		} else { // none is expected, and none is lost
			s.accept(&mail{e.id, env})
		}
	})
}

// collect begins to take the backlog of an entity that is done; on its goroutine.
func (s *roster) collect(e *entry, g *gate.Gate) {
	s.do(func() {
		if s.entries[e.id] == e && e.gate == g {
			s.happensLocked(e, entities.Done)
		}
	})
	collected := func() { s.do(func() { s.collectedLocked(e, g) }) }
	if !g.Flush(collected) { // it ended while it was being made: no mail can have come to it yet
		collected()
	}
}

// collectedLocked: the mail of an entity that is done is back.
func (s *roster) collectedLocked(e *entry, g *gate.Gate) {
	if s.entries[e.id] == e && e.gate == g {
		s.after = append(s.after, func() {
			if n := g.Overruns(); n > 0 {
				s.counts.overruns.add(int(n))
			}
		})
		s.counts.active.Add(-1)
		s.endedLocked(e, entities.Collected)
	}
}

// endedLocked: there is no actor any more, or none came to be, and its mail is back.
func (s *roster) endedLocked(e *entry, how entities.Event) {
	e.gate, e.pid = nil, nil
	e.timer.Stop()
	s.happensLocked(e, how)
	if back := e.back; len(back) > 0 { // it goes on: what was there first goes first
		e.back = nil
		s.pendLocked(e, append(back, s.unpendLocked(e)...)...)
	}
}

// removeLocked takes an entry out. A map that is empty keeps the room that it once needed.
func (s *roster) removeLocked(e *entry) {
	e.timer.Stop()
	if delete(s.entries, e.id); len(s.entries) == 0 {
		s.entries = nil
	}
}

// endAllLocked tells every entity to stop: planned, or because the shard was lost.
func (s *roster) endAllLocked(h *tenure) {
	h.ending = true
	for _, e := range s.entries {
		s.happensLocked(e, entities.Ending)
	}
}

// stopLocked tells an entity to stop, in the way its user chose. That is asked on a goroutine
// of its own, as it may take its time: the entity has until its deadline.
func (s *roster) stopLocked(e *entry) {
	if s.set.stopWith == nil {
		s.stopActor(e.pid)
		return
	}
	pid, g := e.pid, e.gate
	boundary.Aside(func() (any, error) { return s.set.stopWith(), nil }, func(msg any, err error) {
		if err != nil {
			s.log.Error("WithStop's function failed: the entity is stopped at once", zap.Error(err))
		}
		s.do(func() {
			switch {
			case s.entries[e.id] != e || e.gate != g: // it has ended, and its next life has its name
			case msg == nil:
				s.stopActor(pid)
			default:
				s.reach(pid, func(p actor.Process) { p.SendUserMessage(pid, msg) })
			}
		})
	})
}

// passivate stops the entity behind g.
func (s *roster) passivate(id string, g *gate.Gate) {
	s.do(func() {
		if e := s.entries[id]; e != nil && e.gate == g {
			s.happensLocked(e, entities.Asked)
		}
	})
}

// forget has the entity behind g not remembered any more.
func (s *roster) forget(id string, g *gate.Gate) {
	s.do(func() {
		if e := s.entries[id]; e != nil && e.gate == g && s.last != nil { // which may be ending
			s.last.forgetLocked(id)
		}
	})
}

// tries is how often in a row an entity fails before its first message until that counts.
const tries = 3

// failsEarly reports whether the entity fails before its first message time and again.
func (e *entry) failsEarly() bool { return e.Tries >= tries && (e.gate == nil || !e.gate.Used()) }
