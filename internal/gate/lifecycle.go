package gate

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/outlet"
)

// life is where the actor stands, as far as its gate let it come.
//
//	unborn ──Started passed──▶ running ──Stop──▶ stopping ──▶ ended
//	   └────────────── Stop (it never saw Started) ─────────────▲
//
// stopping lasts while there are children. A restart is no change of life.
type life uint8

const (
	unborn life = iota
	running
	stopping
	ended
)

// stop is what the gate makes of a Restart under a dead term.
var stop = &actor.Stop{}

// InvokeSystemMessage decides about what protoactor calls system messages. The
// lifecycle is known by type; everything else is user code (a continuation of
// ReenterAfter is of a private type) and needs a living term.
//
// The clock is read for all of them, so that whatever runs after the deadline
// finds its context done.
func (m *mailbox) InvokeSystemMessage(message any) {
	switch msg := message.(type) {
	case *actor.Watch:
		m.watch(msg)
	case *actor.Unwatch:
		m.watchers.Remove(msg.Watcher)
		m.next.InvokeSystemMessage(msg)
	case *actor.Started:
		m.started(msg)
	case *actor.Stop:
		m.stop(msg)
	case *actor.Restart:
		m.restart(msg)
	case *actor.Terminated:
		m.terminated(msg)
	case *actor.Failure:
		m.failure(msg)
	default:
		m.run(msg)
	}
	if m.held && !m.awaits() {
		m.held = false
		m.stop(stop)
	}
}

// awaits reports whether a planned end waits for what the actor goes on with after an answer.
func (m *mailbox) awaits() bool {
	return !m.child && m.life == running && m.gate.mode.mode() == Draining && m.gate.awaits.Load() > 0
}

// run passes user code that came as a system message, or withholds it.
func (m *mailbox) run(message any) {
	at, ok := m.check()
	if m.life != ended && ok {
		m.hand(message, at)
	}
}

// check reads the clock and reports whether user code may run by it.
func (m *mailbox) check() (at time.Duration, ok bool) {
	at, alive := m.term.Check()
	_, ok = m.admit(alive)
	return at, ok
}

// hand passes a system message that runs user code.
func (m *mailbox) hand(message any, at time.Duration) {
	m.pass(at)
	m.next.InvokeSystemMessage(message)
	m.returned()
}

func (m *mailbox) watch(msg *actor.Watch) {
	if m.life == ended {
		m.send(msg.Watcher, &actor.Terminated{Who: m.self()})
		return
	}
	m.watchers.Add(msg.Watcher)
	m.next.InvokeSystemMessage(msg)
}

func (m *mailbox) started(msg *actor.Started) {
	m.known() // before the mode is looked at: who closes the gate first, and then sees no actor, has none
	at, ok := m.check()
	if m.life > running || !ok {
		return
	}
	if f := m.gate.opts.OnStart; f != nil && !m.child {
		m.gate.opts.OnStart = nil // a restart is not its first life
		if err := m.call("OnStart", f); err != nil {
			m.stop(stop)
			return
		}
	}
	m.life, m.born = running, true
	m.hand(msg, at)
}

// call runs a function of the guardian on the actor.
func (m *mailbox) call(what string, f func(actor.Actor) error) error {
	err := boundary.Call(func() error { return f(m.ctx.Actor()) })
	if err != nil {
		m.log("gate: "+what+" failed", err)
	}
	return err
}

// stop hands a Stop on, whatever the mode; while the gate drains, when the actor awaits no answer.
func (m *mailbox) stop(msg *actor.Stop) {
	if m.life >= stopping {
		return // protoactor would ignore it, too
	}
	if m.held = m.awaits(); m.held {
		return
	}
	m.check() // if it fails, Stopping finds the context done
	if m.life == unborn && len(m.ctx.Children()) == 0 {
		m.finish()
		return
	}
	m.life = stopping
	m.guarded(msg)
	m.noticeEnd()
}

// restart passes a Restart under a living term, makes it a Stop under a dead
// one, and withholds it from an actor that stops: protoactor would bring it back
// to life.
func (m *mailbox) restart(msg *actor.Restart) {
	if m.life >= stopping {
		return
	}
	at, ok := m.check()
	if !ok {
		m.stop(stop)
		return
	}
	m.restarted = true
	m.hand(msg, at)
}

// terminated tells the actor that another ended. A child's end is needed to end
// the actor and is never withheld.
func (m *mailbox) terminated(msg *actor.Terminated) {
	at, ok := m.check()
	switch {
	case m.life == ended:
	case ok:
		m.hand(msg, at)
	case m.isChild(msg.Who):
		// A restart may have been waiting for this child: a Stop before the
		// child's end makes protoactor stop where it would have started again.
		if m.restarted {
			m.stop(stop)
		}
		m.guarded(msg)
	}
	m.noticeEnd()
}

func (m *mailbox) failure(msg *actor.Failure) {
	if m.life == ended {
		return
	}
	m.check() // if it fails, the actor's own HandleFailure finds the context done
	m.next.InvokeSystemMessage(msg)
}

// isChild reports whether who was spawned by the actor. Names nearly always tell; the list of
// children, which is copied to be read, is for those that a spawn middleware chose.
func (m *mailbox) isChild(who *actor.PID) bool {
	if self := m.ctx.Self(); who.GetAddress() == self.Address && strings.HasPrefix(who.GetId(), self.Id+"/") {
		return true
	}
	return slices.ContainsFunc(m.ctx.Children(), func(c *actor.PID) bool { return c.Equal(who) })
}

// guarded hands a lifecycle message on and deals with a panic of its handler at
// once, so that what follows finds the actor in a known state.
func (m *mailbox) guarded(message any) {
	defer func() {
		if r := recover(); r != nil {
			m.EscalateFailure(r, message)
		}
	}()
	m.next.InvokeSystemMessage(message)
}

// EscalateFailure is called by the mailbox's goroutine after a handler
// panicked. protoactor suspends the mailbox and asks the supervisor; the gate
// sees to it that a stop still comes to its end.
func (m *mailbox) EscalateFailure(reason any, message any) {
	if m.passing {
		m.returned()
	}
	switch {
	case m.life == ended:
		m.log("gate: panic while mail was diverted", reason)
	case m.life == stopping && m.gone():
		// Stopped panicked: protoactor has not told of the end, and its
		// answer to the failure could hit a successor of the same name.
		m.log("gate: actor panicked in Stopped", reason)
		m.tell()
		m.noticeEnd()
	case m.life == stopping:
		m.next.EscalateFailure(reason, message)
		m.unwind()
	default:
		m.next.EscalateFailure(reason, message)
		if m.gate.mode.mode() >= Lost {
			m.resume() // undoes the suspension: the mail has to be diverted
		}
	}
}

// unwind takes a stop on where a panic broke it off: in Stopping, before the
// children were told, or in the handling of the last child's end.
func (m *mailbox) unwind() {
	children := m.ctx.Children()
	if len(children) == 0 {
		m.finish()
		return
	}
	for _, c := range children {
		m.ctx.Stop(c)
	}
}

// finish ends the actor in protoactor's stead and order: the name is freed, then
// Stopped, then the watchers and the parent hear of it. Stopped is for those that
// saw Started.
func (m *mailbox) finish() {
	born := m.life != unborn
	m.life = stopping
	m.ctx.CancelReceiveTimeout()
	if !m.gone() {
		m.ctx.ActorSystem().ProcessRegistry.Remove(m.self())
	}
	if born {
		m.stopped()
	}
	m.tell()
	m.noticeEnd()
}

// stopped lets the actor see Stopped.
func (m *mailbox) stopped() {
	defer func() {
		if r := recover(); r != nil {
			m.log("gate: actor panicked in Stopped", r)
		}
	}()
	m.next.InvokeUserMessage(&actor.Stopped{})
}

// noticeEnd notices that the actor has ended, once.
func (m *mailbox) noticeEnd() {
	if m.life != stopping || !m.gone() {
		return
	}
	m.life = ended
	if f := m.gate.opts.OnEnd; f != nil && !m.child && m.born {
		lost := m.gate.mode.mode() >= Lost
		_ = m.call("OnEnd", func(a actor.Actor) error { f(a, lost); return nil })
	}
	m.ended()
}

// ended has the mail diverted that is left, and then says that the actor is done with.
func (m *mailbox) ended() {
	m.resume()
	if m.child {
		return
	}
	m.gate.end()
	m.inner.PostUserMessage(&endMark{})
}

// endMark is queued behind all mail when the actor has ended: when it is taken, everything before
// it was diverted.
type endMark struct{}

// done says that the actor has ended and its mail is back.
func (m *mailbox) done() {
	close(m.gate.done)
	if m.gate.opts.OnDone != nil {
		m.gate.opts.OnDone()
	}
}

// gone reports whether protoactor has forgotten the actor, which it does when it
// ends it. A successor of the same name is another process.
func (m *mailbox) gone() bool {
	p, ok := m.ctx.ActorSystem().ProcessRegistry.GetLocal(m.self().Id)
	return !ok || p != m.process
}

// tell tells all that protoactor would have told that the actor has
// ended.
func (m *mailbox) tell() {
	terminated := &actor.Terminated{Who: m.self()}
	m.watchers.ForEach(func(_ int, pid *actor.PID) { m.send(pid, terminated) })
	if parent := m.ctx.Parent(); parent != nil {
		m.send(parent, terminated)
	}
}

// send reaches an actor whose mailbox may be a user's.
func (m *mailbox) send(pid *actor.PID, message any) {
	if pid != nil {
		outlet.Signal(m.ctx.ActorSystem(), pid, message)
	}
}

func (m *mailbox) self() *actor.PID { return m.ctx.Self() }

func (m *mailbox) log(text string, reason any) {
	system, self := m.ctx.ActorSystem(), m.self()
	system.Logger().Error(text, slog.String("lease", m.gate.name),
		slog.Uint64("token", uint64(m.gate.token)), slog.Any("self", self), slog.Any("reason", reason))
}
