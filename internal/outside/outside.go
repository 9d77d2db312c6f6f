// Package outside runs code of users on behalf of ours: subscribers of the
// EventStream, mailboxes, codecs, loggers. What they do, that is to panic, to hang or to
// call back, breaks off nothing that our code is about to do.
//
// Call is for what must be waited for. Of(system).Do is for what is only told: it waits
// too, so that what is told is told before what follows it, but not for long.
package outside

import (
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/routines"
	"github.com/holdfast-go/holdfast/internal/teller"
)

// Call runs f and returns its error, or one that says what it panicked with.
func Call(f func() error) (err error) {
	defer routines.Contain(&err)
	return f()
}

// Get is Call for what has a result; after a panic that is the zero value.
func Get[T any](f func() (T, error)) (v T, err error) {
	defer routines.Contain(&err)
	return f()
}

// Patience is for how long Do waits for code of users: once for all that comes until
// that code has returned.
const Patience = 100 * time.Millisecond

// moment is how long code of users has yet, when its Patience is all but over.
const moment = Patience / 10

// Limit bounds what waits behind code of users that does not return: so many events, and so
// many of what else is told. A node of many shards has as many events at once; they leave
// the dead letters their room.
const Limit = 1000

// Most bounds what waits behind code that is slow: each of its calls returns in time, but fewer
// than come.
const Most = 10 * Limit

// Hung is for how long what comes waits for room where a bound is reached: once for all, until half
// of Limit is free again. Then it is dropped. On a busy machine code that hangs can't be told
// from code that is not given a processor, and that returns.
const Hung = time.Second

// kind is what is told: each has a bound of its own.
type kind int

const (
	event  kind = iota // of what can also be looked up
	letter             // all that is heard of a message, or of an actor's end
	kinds
)

func (k kind) String() string { return [kinds]string{event: "events", letter: "dead letters"}[k] }

// StopFailing is the strategy of a supervisor that stops its children when they fail; it
// is told why. The subscribers hear of it when the child has been stopped: protoactor's
// own strategies tell them before, and one that panics leaves the child suspended.
func StopFailing(told func(reason any)) actor.SupervisorStrategy { return stopFailing(told) }

type stopFailing func(reason any)

// HandleFailure implements actor.SupervisorStrategy.
func (told stopFailing) HandleFailure(system *actor.ActorSystem, s actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	told(reason)
	s.StopChildren(child)
	Of(system).Publish(&actor.SupervisorEvent{Child: child, Reason: reason, Directive: actor.StopDirective})
}

// Aside runs f on a goroutine of its own and then, there, done with what became of it:
// also where f panics, or ends the goroutine. Where f hangs, done is not called.
func Aside[T any](f func() (T, error), done func(T, error)) { go Then(f, done) }

// Apart is routines.Apart for what has a result; that is the zero value if f did not return.
func Apart[T any](f func() (T, error)) (v T, err error) {
	err = routines.Apart(func() (err error) { v, err = f(); return err })
	return v, err
}

// Then is Aside on the caller's goroutine, which f may end.
func Then[T any](f func() (T, error), done func(T, error)) {
	var v T
	err := routines.ErrEnded
	defer func() { done(v, err) }()
	v, err = Get(f)
}

// Tell sends to an actor, from a goroutine that much else depends on, or that holds a lock.
// If the actor has ended the message is a dead letter, told like all that a World tells.
// What its mailbox panics with, which may be a user's, is lost; that it blocks, is not.
func Tell(system *actor.ActorSystem, pid *actor.PID, message any) {
	reach(system, pid, func(p actor.Process) { p.SendUserMessage(pid, message) })
}

// Signal is Tell for a system's message.
func Signal(system *actor.ActorSystem, pid *actor.PID, message any) {
	reach(system, pid, func(p actor.Process) { p.SendSystemMessage(pid, message) })
}

// reach calls send with the process of pid; if there is none, as a World does, with that of
// the dead letters.
func reach(system *actor.ActorSystem, pid *actor.PID, send func(actor.Process)) {
	_ = Call(func() error {
		if p, ok := system.ProcessRegistry.Get(pid); ok {
			send(p)
		} else {
			Of(system).Do(func() { send(system.DeadLetter) })
		}
		return nil
	})
}

// World is what an actor system has around it. Safe for concurrent use.
type World struct {
	system *actor.ActorSystem
	lines  teller.Teller

	mu      sync.Mutex
	waiting []*call
	running bool      // the goroutine runs, which it does while there is something to do
	runs    *call     // by it; nil: none
	since   time.Time // when that was called
	stuck   bool      // it has been seen not to return
	waits   [kinds]int
	full    [kinds]time.Time // since when there is no room for more; zero: there is
	dropped [kinds]int
}

type call struct {
	kind kind
	f    func()
	done chan struct{}
}

var worldID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*World) ExtensionID() extensions.ExtensionID { return worldID }

// Of returns the world of system.
func Of(system *actor.ActorSystem) *World {
	return actors.Extension(system, worldID, func() *World {
		w := &World{system: system}
		w.lines.Lost = w.lost
		return w
	})
}

// Publish tells the subscribers of the EventStream.
func (w *World) Publish(e any) { w.tell(event, func() { w.system.EventStream.Publish(e) }) }

// DeadLetter tells them of a message to pid that no actor gets, and its sender; or, if the
// system sent it, who watches.
func (w *World) DeadLetter(pid *actor.PID, message any) {
	w.Do(func() { w.system.DeadLetter.SendUserMessage(pid, message) })
}

// DeadSignal is DeadLetter for a system's message: who watches is told that there is none.
func (w *World) DeadSignal(pid *actor.PID, message any) {
	w.Do(func() { w.system.DeadLetter.SendSystemMessage(pid, message) })
}

// Send sends to an actor of a user's, whose mailbox may be anything.
func (w *World) Send(pid *actor.PID, message any) {
	w.Do(func() { w.system.Root.Send(pid, message) })
}

// Do runs f, one after the other, on a goroutine that belongs to the world, and returns
// when it has, or after Patience. Once one that goes before has been seen not to return
// for that long it does not wait at all, and f is run later; beyond Limit of these it waits
// for room, for Hung in all, and without any f is not run, which is logged when it begins and when
// it is over. Events are not among these.
func (w *World) Do(f func()) { w.tell(letter, f) }

func (w *World) tell(k kind, f func()) {
	c, late := w.add(k, f)
	if late {
		return
	}
	// A process that was stopped for a while finds that all of its time is over at once:
	// so what runs is looked at twice, and has a moment in between.
	t := time.NewTimer(Patience - moment)
	defer t.Stop()
	select {
	case <-c.done:
		return
	case <-t.C:
	}
	w.mu.Lock()
	runs := w.runs
	w.mu.Unlock()
	t.Reset(moment)
	select {
	case <-c.done:
		return
	case <-t.C:
	}
	w.mu.Lock()
	first := !w.stuck && w.runs == runs && runs != nil && time.Since(w.since) >= Patience
	w.stuck = w.stuck || first
	w.mu.Unlock()
	if first {
		w.log("a subscriber of the EventStream, or a mailbox, does not return: what is told next waits, up to a limit of events and the same of dead letters",
			slog.Duration("since", Patience), slog.Int("limit", Limit))
	}
}

func (w *World) add(k kind, f func()) (c *call, late bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.stuck && w.waits[k] >= Limit || w.waits[k] >= Most {
		if w.full[k].IsZero() {
			w.full[k] = time.Now()
		}
		left := Hung - time.Since(w.full[k])
		if left <= 0 {
			if w.dropped[k]++; w.dropped[k] == 1 {
				w.log("no more events or dead letters are told: a subscriber, or a mailbox, does not return, or is too slow",
					slog.String("of", k.String()))
			}
			return nil, true
		}
		next := w.runs
		if next == nil {
			next = w.waiting[0]
		}
		w.awaitLocked(next, left)
	}
	c = &call{kind: k, f: f, done: make(chan struct{})}
	w.waiting = append(w.waiting, c)
	w.waits[k]++
	if !w.running {
		w.running = true
		go w.run()
	}
	return c, w.stuck
}

// awaitLocked gives the lock away until a call has returned, or for that long.
func (w *World) awaitLocked(c *call, most time.Duration) {
	w.mu.Unlock()
	defer w.mu.Lock()
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
	}
}

// run does what waits, and ends. It goes on where a call has ended its goroutine (runtime.Goexit).
func (w *World) run() {
	over := false
	defer func() {
		if !over {
			go w.run()
		}
	}()
	for c := w.next(); c != nil; c = w.next() {
		w.call(c)
	}
	over = true
}

// next takes the next call off the queue; nil if there is none, and run is to end.
func (w *World) next() *call {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		w.waiting, w.running = nil, false
		return nil
	}
	c := w.waiting[0]
	w.waiting[0] = nil
	w.waiting = w.waiting[1:]
	k := c.kind
	if w.waits[k]--; w.waits[k] < Limit/2 {
		w.full[k] = time.Time{}
		if w.dropped[k] > 0 {
			w.log("events or dead letters were not told: a subscriber, or a mailbox, did not return, or was too slow",
				slog.String("of", k.String()), slog.Int("count", w.dropped[k]))
			w.dropped[k] = 0
		}
	}
	w.runs, w.since = c, time.Now()
	return c
}

func (w *World) call(c *call) {
	defer func() {
		p := recover()
		w.mu.Lock()
		w.runs, w.stuck = nil, false
		w.mu.Unlock()
		close(c.done)
		if p != nil {
			w.log("a subscriber of the EventStream, or a mailbox, panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	c.f()
}

func (w *World) log(text string, attrs ...any) {
	w.Log(func(l *slog.Logger) { l.Error(text, attrs...) })
}
