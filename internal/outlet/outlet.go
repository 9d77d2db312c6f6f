// Package outlet publishes the events and dead letters of an actor system: one goroutine calls
// the subscribers of its EventStream, from bounded queues. A publisher never waits for a
// subscriber, and may hold a lock.
//
//	Publish, Latest ──▶ events  ─┐
//	                             ├─▶ one goroutine ─▶ EventStream ─▶ subscribers
//	DeadLetter ───────▶ letters ─┘
//
// What finds its queue full is dropped, counted (Measure) and said in the log, once until the
// queue is empty again. Of events that have a key (Latest) the last always arrives. Events come
// before dead letters, each in the order in which they were published.
//
// No code of ours may decide by what it hears from the EventStream.
package outlet

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/feed"
)

// Limit bounds what waits in each queue, and limitBytes about how large the dead letters are that
// wait. One that is larger passes alone.
const (
	Limit      = 10_000
	limitBytes = 64 << 20
)

// Outlet is the outlet of one actor system. Safe for concurrent use.
type Outlet struct {
	system *actor.ActorSystem
	queue  feed.Queue
	lost   atomic.Pointer[metric.Int64Counter]
	counts [len(Reasons)]atomic.Int64
}

// Reasons are those of dead letters, by hosting.Reason. The first is for dead letters to actors that
// have ended, too, and for reasons of newer nodes.
var Reasons = [...]string{"unspecified", "unknown type", "undecodable", "too large", "overflow", "no holder",
	"too many hops", "expired", "no such token", "too new"}

// The classes of the queue, and their names.
const (
	events = iota
	letters
)

var names = [...]string{"events", "dead letters"}

var extensionID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*Outlet) ExtensionID() extensions.ExtensionID { return extensionID }

// Of returns the outlet of a system.
func Of(system *actor.ActorSystem) *Outlet {
	return actors.Extension(system, extensionID, func() *Outlet {
		o := &Outlet{system: system}
		o.queue = feed.Queue{Limit: Limit, Bytes: limitBytes, Dropped: o.dropped,
			Call: func(publish func()) { guard(system, "a subscriber of the EventStream", publish) }}
		return o
	})
}

// dropped counts what was dropped, and logs it once until the queue is empty again.
func (o *Outlet) dropped(of int, n int64, first bool) {
	if lost := o.lost.Load(); lost != nil {
		guard(o.system, "a meter", func() {
			(*lost).Add(context.Background(), n, metric.WithAttributes(attribute.String("of", names[of])))
		})
	}
	if first {
		guard(o.system, "a logger", func() {
			o.system.Logger().Error(names[of]+" are dropped: a subscriber of the EventStream is too slow", slog.Int("limit", Limit))
		})
	}
}

// Measure counts what is dropped by the first MeterProvider that it is called with.
func (o *Outlet) Measure(p metric.MeterProvider) error {
	c, err := p.Meter("github.com/holdfast-go/holdfast/outlet").Int64Counter("holdfast.outlet.dropped",
		metric.WithDescription("Events and dead letters that were not published, as subscribers of the EventStream are too slow."))
	if err != nil {
		return err
	}
	o.lost.CompareAndSwap(nil, &c)
	return nil
}

// Publish publishes an event. One that is a dead letter is one of these.
func (o *Outlet) Publish(e any) {
	if l, ok := e.(*actor.DeadLetterEvent); ok {
		o.letter(l.PID, l.Message, l.Sender, func() { o.system.EventStream.Publish(e) })
		return
	}
	o.Latest(nil, e)
}

// Do has publish called among the events.
func (o *Outlet) Do(publish func()) { o.queue.Put(events, feed.Item{Do: publish}) }

// Latest publishes an event, of which the last of its key always arrives: where the queue is full
// it takes the place of the one that waits.
func (o *Outlet) Latest(key, e any) {
	o.queue.Put(events, feed.Item{Key: key, Do: func() { o.system.EventStream.Publish(e) }})
}

// DeadLetter makes a dead letter of a message to pid.
func (o *Outlet) DeadLetter(pid *actor.PID, message any) { o.Undeliverable(0, pid, message) }

// Undeliverable is DeadLetter for a reason out of Reasons.
func (o *Outlet) Undeliverable(reason int32, pid *actor.PID, message any) {
	if reason < 0 || int(reason) >= len(Reasons) {
		reason = 0
	}
	o.counts[reason].Add(1)
	_, msg, sender := actor.UnwrapEnvelope(message)
	o.letter(pid, msg, sender, func() { o.system.DeadLetter.SendUserMessage(pid, message) })
}

// Counts are the dead letters, but those of the system's messages, that came to the outlet, by reason; those that are 0
// are left out.
func (o *Outlet) Counts() map[string]int64 {
	all := map[string]int64{}
	for i, name := range Reasons {
		if n := o.counts[i].Load(); n > 0 {
			all[name] = n
		}
	}
	return all
}

// DeadSignal is DeadLetter for a system's message.
func (o *Outlet) DeadSignal(pid *actor.PID, message any) {
	o.letter(pid, message, nil, func() { o.system.DeadLetter.SendSystemMessage(pid, message) })
}

// letter queues a dead letter. Where it is dropped, a sender or a watcher that waits for what
// protoactor's own subscriber answers is answered here.
func (o *Outlet) letter(pid *actor.PID, message any, sender *actor.PID, publish func()) {
	if o.queue.Put(letters, feed.Item{Do: publish, Size: actors.Footprint(message)}) {
		return
	}
	if sender != nil {
		Tell(o.system, sender, &actor.DeadLetterResponse{Target: pid})
	}
	if w, ok := message.(*actor.Watch); ok {
		Signal(o.system, w.Watcher, &actor.Terminated{Who: pid, Why: actor.TerminatedReason_NotFound})
	}
}

// guard calls users' code, and logs a panic.
func guard(system *actor.ActorSystem, what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			defer func() { _ = recover() }() // it may have been the logger
			system.Logger().Error(what+" panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	f()
}

// Tell sends to an actor; a message to one that has ended is a dead letter. What the mailbox
// panics with, which may be a user's, is logged.
func Tell(system *actor.ActorSystem, pid *actor.PID, message any) {
	if p, ok := lives(system, pid); ok {
		guard(system, "a mailbox", func() { p.SendUserMessage(pid, message) })
	} else {
		Of(system).DeadLetter(pid, message)
	}
}

// Signal is Tell for a system's message.
func Signal(system *actor.ActorSystem, pid *actor.PID, message any) {
	if p, ok := lives(system, pid); ok {
		guard(system, "a mailbox", func() { p.SendSystemMessage(pid, message) })
	} else {
		Of(system).DeadSignal(pid, message)
	}
}

// lives returns the process of an actor; false if there is none, and the dead letters have its mail.
func lives(system *actor.ActorSystem, pid *actor.PID) (p actor.Process, ok bool) {
	p, ok = system.ProcessRegistry.Get(pid)
	return p, ok && p != actor.Process(system.DeadLetter)
}
