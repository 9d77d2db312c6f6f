package gate

import (
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// mailbox is one actor's way through a gate. To protoactor it is the
// mailbox; to the mailbox that it wraps it is the actor (the MessageInvoker).
//
// What senders read and what the mailbox's goroutine writes for every message
// lie on different cache lines. All that is not atomic belongs to the mailbox's
// goroutine once RegisterHandlers returned.
type mailbox struct {
	inner *inbox
	child bool // refused mail goes to the dead letters, and Drain means nothing
	_     [64]byte

	next    actor.MessageInvoker
	term    lease.Term
	gate    *Gate
	journal func(name string, token lease.Token, at time.Duration)
	life    life
	passing bool          // a handler that was let through is running
	passes  atomic.Uint32 // 2: or more
	seen    reflect.Type  // of the front door's last message
	_       [64]byte

	ctx       actor.Context // of the actor
	process   actor.Process // what the actor is registered as
	watchers  actor.PIDSet
	restarted bool // a Restart passed
	born      bool // Started passed
	held      bool // a Stop came that waits for continuations
}

var (
	_ actor.Mailbox        = (*mailbox)(nil)
	_ actor.MessageInvoker = (*mailbox)(nil)
)

func newMailbox(g *Gate, child bool) *mailbox {
	return &mailbox{inner: newInbox(), gate: g, term: g.opts.Term, journal: g.opts.Journal, child: child}
}

// PostUserMessage queues a message. nil is dropped: it would keep protoactor's
// mailboxes spinning for ever.
func (m *mailbox) PostUserMessage(message any) {
	if message != nil {
		m.inner.PostUserMessage(message)
	}
}

// postFront queues mail from the front door.
func (m *mailbox) postFront(envelope any) {
	if e, ok := envelope.(*actor.MessageEnvelope); envelope != nil && (!ok || e != nil) {
		m.inner.post(letter{envelope, true})
	}
}

func (m *mailbox) PostSystemMessage(message any) { m.inner.PostSystemMessage(message) }

func (m *mailbox) UserMessageCount() int { return m.inner.UserMessageCount() }

// RegisterHandlers is where an actor comes to be behind the gate: a spawn that
// fails because its name is taken doesn't get here.
func (m *mailbox) RegisterHandlers(invoker actor.MessageInvoker, dispatcher actor.Dispatcher) {
	m.next, m.ctx = invoker, invoker.(actor.Context) // else the end of the actor would go unnoticed
	m.process, _ = m.ctx.ActorSystem().ProcessRegistry.GetLocal(m.self().Id)
	if !m.child && !m.gate.bound.CompareAndSwap(false, true) {
		m.gate = m.gate.spent()
	}
	if !m.child && reflect.TypeOf(dispatcher) != defaultDispatcher {
		dispatcher = &driver{Dispatcher: dispatcher, mailbox: m}
	}
	m.inner.RegisterHandlers(m, dispatcher)
}

// defaultDispatcher is what protoactor takes where users choose none: it runs nothing on
// the goroutine that posts.
var defaultDispatcher = reflect.TypeOf(actor.NewDefaultDispatcher(0))

// Start is called when Started has been queued. It may have been taken long since, and
// its handler may run yet: a dispatcher may run the mailbox where it is posted to.
func (m *mailbox) Start() { m.known() }

// known makes the actor one that Actor tells of, and Post reaches: Started is in the
// mailbox, or was taken, so that nothing can be put before it.
func (m *mailbox) known() {
	if !m.child {
		m.gate.main.Store(m)
	}
}

// resume lets the mailbox's goroutine go on with a crashed actor's mail. Only
// where nothing passes any more.
func (m *mailbox) resume() { m.inner.PostSystemMessage(&actor.ResumeMailbox{}) }

// InvokeUserMessage passes or refuses one message that was taken from the mailbox and had not come
// through the front door.
func (m *mailbox) InvokeUserMessage(message any) { m.invoke(message, false) }

// invoke passes or refuses one message. This is the path that has to be fast.
func (m *mailbox) invoke(envelope any, front bool) {
	at, alive := m.term.Check()
	if !alive || m.life > running || m.gate.mode.mode() != Open {
		m.decide(envelope, front, at, alive)
		return
	}
	if front {
		if msg := actor.UnwrapEnvelopeMessage(envelope); reflect.TypeOf(msg) != m.seen {
			m.look(msg)
		}
	}
	m.pass(at)
	m.next.InvokeUserMessage(envelope)
	m.returned()
}

// look warns, once for each type, of a message that reached its actor because that is
// on this node: on another, its type would be unknown.
func (m *mailbox) look(message any) {
	m.seen = reflect.TypeOf(message)
	system := m.ctx.ActorSystem()
	if system.Address() == actors.NoAddress {
		return // there are no other nodes
	}
	if err := wire.Default.Overlooked(message); err != nil {
		typ, why := fmt.Sprintf("%T", message), wire.Why(err, system.Address())
		system.Logger().Warn("gate: a message that could not have come from another node", slog.String("lease", m.gate.name),
			slog.String("type", typ), slog.String("why", why))
	}
}

// decide is invoke where something stands against passing.
func (m *mailbox) decide(envelope any, front bool, at time.Duration, alive bool) {
	if _, ok := envelope.(*endMark); ok {
		m.done()
		return
	}
	if m.life == ended {
		m.refuse(envelope, front)
		return
	}
	mode, ok := m.admit(alive)
	if !ok || (front && !m.child && (mode == Draining || m.life == stopping)) {
		m.refuse(envelope, front)
		return
	}
	m.pass(at)
	m.next.InvokeUserMessage(envelope)
	m.returned()
}

// admit reports whether the actor may run, given what the term's clock said, and
// the mode by which it may: one look, since the mode may change at any moment.
// If it may not, the context is done and OnLost has returned.
func (m *mailbox) admit(alive bool) (mode Mode, ok bool) {
	if mode = m.gate.mode.mode(); alive && mode < Lost {
		return mode, true
	}
	m.gate.Lose(nil)
	<-m.gate.told
	return Lost, false
}

// pass notes that a handler is about to run by the clock reading at.
func (m *mailbox) pass(at time.Duration) {
	if m.journal != nil {
		m.journal(m.gate.name, m.gate.token, at)
	}
	if n := m.passes.Load(); n < 2 {
		m.passes.Store(n + 1)
	}
	m.passing = true
}

// returned notes that the handler is back.
func (m *mailbox) returned() {
	m.passing = false
	if m.gate.mode.mode() == Lost {
		m.gate.overruns.Add(1)
	}
}

// refuse hands a message to the guardian, or a child's to the dead letters.
func (m *mailbox) refuse(envelope any, front bool) {
	if m.child {
		outlet.Of(m.ctx.ActorSystem()).DeadLetter(m.self(), envelope)
		return
	}
	if done, ok := envelope.(flush); ok {
		done()
		return
	}
	if front {
		m.gate.opts.Divert(envelope)
		return
	}
	m.gate.opts.Internal(envelope)
}

// driver calls a dispatcher of the Props, other than protoactor's default, on a goroutine of its own:
// the sender may hold a lock, and the dispatcher may run the mailbox where it is called.
type driver struct {
	actor.Dispatcher
	mailbox *mailbox
	failed  atomic.Bool
}

// Schedule implements actor.Dispatcher. The Props' dispatcher runs the mailbox; if it panics, the
// driver runs it, because an actor that does not run can't be stopped either.
func (d *driver) Schedule(run func()) {
	var begun atomic.Bool // one that panics may have run it, or may yet
	drive := func() {
		if begun.CompareAndSwap(false, true) {
			run()
		}
	}
	schedule := func() (struct{}, error) { d.Dispatcher.Schedule(drive); return struct{}{}, nil }
	boundary.Aside(schedule, func(_ struct{}, err error) {
		if err == nil {
			return
		}
		if d.failed.CompareAndSwap(false, true) {
			d.mailbox.log("gate: the dispatcher of the Props failed, the actor is run without", err)
		}
		drive()
	})
}
