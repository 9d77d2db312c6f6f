package sharding

import (
	"cmp"
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
	timer   lease.Timer
}

// handOver gives a message to its entity, starting it if need be. The shard is
// open, or the message waits in the entry until it is given back.
func (s *shard) handOver(m *mail, custody bool) {
	e := s.entries[m.id]
	switch {
	case (e == nil || e.Phase != entities.Active) && s.full(custody):
		s.Drop(&route.Item{Local: m}, "as much waits on this node as may")
	case e == nil:
		e = s.begin(m.id)
		s.pend(e, m.envelope)
	case e.Phase == entities.Active:
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
	e := &entry{id: id}
	if s.entries == nil {
		s.entries = map[string]*entry{}
	}
	s.entries[id] = e
	s.use(e)
	var effects []entities.Effect
	e.Life, effects = entities.Begin(s.nowOf(e))
	s.carryOutAll(e, effects)
	return e
}

// nowOf is how things stand for an entity.
func (s *shard) nowOf(e *entry) entities.Now {
	now := entities.Now{Only: s.r.set.recallActive, Mail: len(e.pending)+len(e.back) > 0,
		Long: s.Now()-e.since >= s.r.set.backoffMax}
	h := s.last
	if now.Ending = h == nil || h.ending; h != nil {
		now.Lost, now.Barred = h.cause != nil, h.barred != nil
		if s.r.set.store != nil {
			now.Forgotten = !h.rem.known[e.id]
			now.Unwritten = !h.rem.loaded || now.Forgotten
		}
	}
	if e.gate != nil {
		now.Actor, now.Unused = e.gate.Actor() != nil, e.gate.Counters().Passed == 1 // Started
	}
	return now
}

// happens feeds one event to an entity, and carries out what comes of it, which it returns.
func (s *shard) happens(e *entry, ev entities.Event) []entities.Effect {
	var effects []entities.Effect
	e.Life, effects = e.Next(ev, s.nowOf(e))
	s.carryOutAll(e, effects)
	return effects
}

func (s *shard) carryOutAll(e *entry, effects []entities.Effect) {
	for _, f := range effects {
		s.carryOutFor(e, f)
	}
}

// carryOutFor does one effect. What runs users' code runs elsewhere, or once mu is free.
func (s *shard) carryOutFor(e *entry, f entities.Effect) {
	h := s.last
	switch f {
	case entities.Remember:
		s.note(h, e.id)
	case entities.Make:
		go h.guardian.start(e)
	case entities.MakeGate, entities.Spawn: // the guardian's, which asked
	case entities.Deliver:
		s.use(e) // it has just begun, however long its mail has waited
		s.deliverPending(e)
	case entities.Drain:
		e.gate.Drain()
	case entities.Lose:
		e.gate.Lose(cmp.Or(h.cause, h.barred))
	case entities.LoseLate:
		e.gate.Lose(ErrOverdue)
	case entities.StopGently:
		s.stop(e)
	case entities.StopNow:
		s.r.stopActor(e.pid)
	case entities.StopMade:
		s.after = append(s.after, e.gate.Stop)
	case entities.Await:
		s.await(e)
	case entities.TellLate:
		late := Event{Kind: NotStopping, Shard: s.number, ID: e.id, Token: e.gate.Token(), After: s.r.set.stopWithin}
		s.after = append(s.after, func() { s.r.event(late) })
	case entities.GiveUp:
		e.gate.Close()
		if pid := e.gate.Actor(); pid != nil {
			e.pid = actor.NewPID(pid.Address, pid.Id)
		}
		h.guardian.say(e, "an entity is given up that was being made", h.cause)
	case entities.Pause:
		s.pause(e)
	case entities.GiveBack:
		s.giveBack(e)
	case entities.Remove:
		delete(s.entries, e.id)
	case entities.Unremember:
		s.unremember(h, e.id)
	}
}

// deliverPending gives an entity what waits for it.
func (s *shard) deliverPending(e *entry) {
	for _, env := range s.unpend(e) {
		if left, ok := wire.PatienceOf(s.r.system, actor.UnwrapEnvelopeSender(env)); ok && left == 0 {
			s.Refuse(&route.Item{Local: &mail{e.id, env}}, wire.Reason_REASON_EXPIRED, "who asked does not wait any more")
			continue
		}
		e.gate.Post(env)
	}
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
			s.happens(e, entities.Done)
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
		s.ended(e, entities.Collected)
	}
}

// ended: there is no actor any more, or none came to be, and its mail is back.
func (s *shard) ended(e *entry, how entities.Event) {
	back := append(e.back, s.unpend(e)...)
	e.back, e.gate, e.pid = nil, nil, nil
	s.pend(e, back...)
	halt(e.timer)
	s.happens(e, how)
}

// pause has an entity wait until it is started again.
func (s *shard) pause(e *entry) {
	d := pause(int(e.Tries)-1, s.r.set.backoffMin, s.r.set.backoffMax)
	e.timer = s.r.clock.AfterFunc(d, func() {
		s.do(func() {
			if s.entries[e.id] == e {
				s.happens(e, entities.BackedOff)
			}
		})
	})
}

// giveBack ends the entry of a shard that ends; its mail goes to the next host.
func (s *shard) giveBack(e *entry) {
	halt(e.timer)
	delete(s.entries, e.id)
	for _, env := range s.unpend(e) {
		s.routing().Back(s.item(&mail{e.id, env}))
	}
}

// endAll tells every entity to stop: planned, or because the shard was lost.
func (s *shard) endAll(h *home) {
	h.ending = true
	for _, e := range s.entries {
		s.happens(e, entities.Ending)
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

// stop tells an entity to stop, in the way its user chose. That is asked on a goroutine
// of its own, as it may take its time: the entity has until its deadline.
func (s *shard) stop(e *entry) {
	if s.r.set.stopWith == nil {
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
		if e := s.entries[id]; e != nil && e.gate == g {
			s.happens(e, entities.Asked)
		}
	})
}

// await has an entity that was told to stop shut off if it has not by its deadline.
func (s *shard) await(e *entry) {
	g := e.gate
	e.timer = s.r.clock.AfterFunc(s.r.set.stopWithin, func() {
		s.do(func() {
			if s.entries[e.id] == e && e.gate == g {
				s.happens(e, entities.Overdue)
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
