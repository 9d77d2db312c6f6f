package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/lease"
)

// ErrEnded is the cause of a gate's context when the actor ended, or the gate
// was closed, before the term did.
var ErrEnded = errors.New("guarded actor ended")

// Options say what a gate guards and whom it tells. The functions must not block:
// the mailbox, and all that waits for the loss, waits for them. They must not
// send to an actor that runs on the sender's goroutine (a synchronized
// dispatcher).
type Options struct {
	// Term is the ownership that the actor works under. Required.
	Term lease.Term
	// Divert gets what was refused, as it was posted: the bare message or the
	// *actor.MessageEnvelope with its sender and headers. In the mailbox's order,
	// on the mailbox's goroutine, never twice for one message. The messages of a
	// batch come one by one and then the batch itself. It may be
	// called after Done, for mail that was posted after the end. Required.
	Divert func(envelope any)
	// Internal gets what was refused and had not come through the front door, in
	// place of Divert: replies to a request of the actor, its own ticks, a
	// PoisonPill: mail that means nothing to a successor. Default: Divert.
	Internal func(envelope any)
	// OnLost is called once if the term ended, or Lose was called, before the
	// actor ended; after the context was cancelled and before the first message
	// is refused for it. cause is context.Cause of the gate's context. On the
	// mailbox's goroutine, the one that called Lose, or one of its own; for a
	// term that has ended already perhaps before New returns.
	OnLost func(cause error)
	// OnDone is called once, on the mailbox's goroutine, when Done is closed;
	// after OnLost, if that is called at all. Not called by Close.
	OnDone func()
	// OnStart gets the actor before it sees Started, for its first life behind the
	// gate only; on an error Started is withheld and the actor ends. It runs under
	// the term, like a handler.
	OnStart func(actor.Actor) error
	// OnEnd gets the actor once it has ended, if it saw Started, on its goroutine.
	// lost: the gate was lost before.
	OnEnd func(a actor.Actor, lost bool)
	// Journal hears of every pass, before the handler runs, with the clock
	// reading that decided it. Concurrently for actors under one gate. If it panics, the
	// actor has failed.
	Journal func(name string, token lease.Token, at time.Duration)
}

// Gate guards one actor, and its children as far as it is asked to, for one
// life under one term. Every method is safe for concurrent use.
type Gate struct {
	// Self is what the guarded actor is to the owner of the gate, which sets it before Spawn.
	Self any

	mode  state
	name  string
	token lease.Token
	opts  Options

	ctx    context.Context
	cancel context.CancelCauseFunc
	detach func() bool   // stops following the term's context
	told   chan struct{} // closed when OnLost need not be waited for any more
	done   chan struct{}

	bound atomic.Bool             // an actor took the gate
	main  atomic.Pointer[mailbox] // its mailbox, once it may be posted to

	overruns atomic.Uint64
	awaits   atomic.Int32 // continuations that have not run yet
}

// New returns an open gate, or one that is about to be lost if the term has
// ended. It returns an error that is lease.ErrInvalid if the term has no context. Close a gate
// whose actor was never spawned.
func New(o Options) (*Gate, error) {
	if o.Term.Context() == nil { // of a user's lease
		return nil, fmt.Errorf("gate: Term: %w: its context is nil", lease.ErrInvalid)
	}
	if o.Internal == nil {
		o.Internal = o.Divert
	}
	g := &Gate{
		name:  o.Term.Name(),
		token: o.Term.Token(),
		opts:  o,
		told:  make(chan struct{}),
		done:  make(chan struct{}),
	}
	g.ctx, g.cancel = context.WithCancelCause(o.Term.Context())
	g.detach = context.AfterFunc(g.ctx, func() { g.Lose(nil) })
	return g, nil
}

// Name returns the term's name.
func (g *Gate) Name() string { return g.name }

// Token returns the term's fencing token.
func (g *Gate) Token() lease.Token { return g.token }

// Context is done when the term ends, the gate is lost, or the actor has ended;
// context.Cause says why: the term's cause, what Lose was given,
// lease.ErrExpired if the gate found the deadline passed, or ErrEnded.
func (g *Gate) Context() context.Context { return g.ctx }

// CheckAlive reports whether work may go on at this moment. It reads the clock.
func (g *Gate) CheckAlive() bool { return g.mode.mode() < Lost && g.opts.Term.CheckAlive() }

// Mode returns the present mode. A term that ended may not have been noticed
// yet; CheckAlive notices.
func (g *Gate) Mode() Mode { return g.mode.mode() }

// Drain turns away front-door mail that has not been taken yet. It changes
// nothing unless the gate is open.
func (g *Gate) Drain() { g.mode.raise(Draining) }

// Lose closes the gate for good: it cancels the context with cause, unless it is
// done already, and calls OnLost. With a nil cause it is the cause of the term's
// context, or lease.ErrExpired if that is not done. A call that comes second
// returns at once.
func (g *Gate) Lose(cause error) {
	if _, moved := g.mode.raise(Lost); !moved {
		return
	}
	g.tell(cause)
	if m := g.main.Load(); m != nil {
		m.resume() // a crashed actor's mailbox is suspended, with mail in it
	}
}

// tell cancels the context, calls OnLost and lets those go on who wait for it.
func (g *Gate) tell(cause error) {
	defer close(g.told)
	g.cancel(cmp.Or(cause, context.Cause(g.opts.Term.Context()), lease.ErrExpired))
	if g.opts.OnLost != nil {
		g.opts.OnLost(context.Cause(g.ctx))
	}
}

// Post puts an envelope from the front door into the guarded actor's mailbox.
// Unlike a send to the PID it reaches the mailbox, and so the actor or Divert,
// also after the actor ended. It does not block, and runs no users' code: the caller may hold
// a lock. A batch (actor.MessageBatch) counts as one message: protoactor's mailboxes queue its
// messages one by one before it, so the mailbox of the front door has done that already. false:
// no actor was spawned yet, and nothing was done.
func (g *Gate) Post(envelope any) bool {
	m := g.main.Load()
	if m == nil {
		return false
	}
	m.postFront(envelope)
	return true
}

// Flush has done called, on the mailbox's goroutine, when all that was posted before has been diverted:
// for an actor that is done (OnDone). false as that of Post.
func (g *Gate) Flush(done func()) bool { return g.Post(flush(done)) }

// flush is behind the mail of an actor that is done.
type flush func()

// Used reports whether anything but Started has passed to the guarded actor.
func (g *Gate) Used() bool {
	m := g.main.Load()
	return m != nil && m.passes.Load() > 1
}

// Overruns counts passes, to the actor or its guarded children, whose handler was still running
// when the gate was lost. It is a lower bound: a handler that returned before the end was noticed
// (the timer was late) is not among them.
func (g *Gate) Overruns() uint64 { return g.overruns.Load() }

// Waiting returns how many messages wait in the guarded actor's mailbox.
func (g *Gate) Waiting() int {
	if m := g.main.Load(); m != nil {
		return m.inner.UserMessageCount()
	}
	return 0
}

// Done is closed when the guarded actor has ended and everything that was in its
// mailbox then has been diverted; or by Close, if there was no actor.
func (g *Gate) Done() <-chan struct{} { return g.done }

// Close ends a gate that is not needed: an actor can't be spawned behind it any
// more, the context is cancelled with ErrEnded, OnLost is not called. If there
// is an actor nothing passes to it any more; it still has to be stopped.
func (g *Gate) Close() {
	g.end()
	if g.bound.CompareAndSwap(false, true) {
		close(g.done)
	}
}

// end makes the gate ended and waits until OnLost, if it was begun, returned.
func (g *Gate) end() {
	was, moved := g.mode.raise(Ended)
	if !moved {
		return
	}
	g.detach()
	g.cancel(ErrEnded)
	if was == Lost {
		<-g.told
		return
	}
	close(g.told)
}

// spent returns a gate that lets nothing through, for an actor that has no right
// to be behind g: a second one, or one spawned after Close.
func (g *Gate) spent() *Gate {
	s := &Gate{name: g.name, token: g.token, opts: g.opts, ctx: g.ctx,
		cancel: func(error) {}, detach: func() bool { return false },
		told: make(chan struct{}), done: make(chan struct{})}
	s.opts.OnLost, s.opts.OnDone = nil, nil
	s.end()
	return s
}

// What a gate lets through:
//
//	        Drain
//	open ─────────▶ draining
//	  │                │
//	  │ Lose, or term  │ Lose, or term
//	  │ not alive      │ not alive
//	  ▼                ▼             actor ended, or Close
//	  └────────────▶ lost ──────────────────▶ ended
//	                  (open and draining lead to ended as well)
//
//	what is taken                open     draining  lost      ended
//	front-door mail              passes   diverted  diverted  diverted
//	other mail, PoisonPill       passes   passes    diverted  diverted
//	continuations                pass     pass      withheld  withheld
//	Started                      passes   passes    withheld  withheld
//	Restart                      passes   passes    → Stop    withheld
//	Terminated of a child        passes   passes    lifecycle withheld
//	Terminated of another        passes   passes    withheld  withheld
//	Stop, Failure                ─────── lifecycle ───────    (see below)
//	Watch, Unwatch               ─────── lifecycle ───────    (see below)
//
// "Passes" means: while the term is alive by the clock; the first check that
// fails makes the mode lost. "Lifecycle" is what protoactor needs to end the
// actor and its children; it is always handed on, so Stopping and Stopped
// handlers run after a loss, under a context that is done, and may clean up. It
// is handed on until the actor has ended; then a Watch is answered with
// Terminated and the rest is dropped. An actor that outlives Close is treated as
// lost until then.
//
// An actor whose Started was withheld never worked, so it sees neither Stopping
// nor Stopped: the gate ends it by itself. After a loss a Restart is made a
// Stop, and a restart that was waiting for children becomes a stop too, since a
// new incarnation would run under a dead term. Once an actor has begun to stop,
// front-door mail is diverted (its children may keep it waiting), a Restart is
// withheld, and the rest passes until it ended.

// Mode says what a gate lets through; the table is above.
type Mode uint32

const (
	// Open: everything passes while the term is alive.
	Open Mode = iota
	// Draining: front-door mail is diverted, the rest passes while the term is
	// alive, so that what was begun can be finished.
	Draining
	// Lost: the term ended under the actor. Nothing passes.
	Lost
	// Ended: the actor ended, or the gate was closed. Nothing passes.
	Ended
)

// state is a mode that moves atomically. Modes only grow.
type state struct{ v atomic.Uint32 }

func (s *state) mode() Mode { return Mode(s.v.Load()) }

// raise makes it to, unless it is that or beyond; moved is true for the one caller that caused the
// change.
func (s *state) raise(to Mode) (was Mode, moved bool) {
	for {
		if was = s.mode(); was >= to {
			return was, false
		}
		if s.v.CompareAndSwap(uint32(was), uint32(to)) {
			return was, true
		}
	}
}
