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
	"slices"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/wire"
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

	mu      sync.Mutex
	events  queue
	letters queue
	running bool // its goroutine runs, as long as something waits
	lost    metric.Int64Counter
}

// queue is one of an Outlet, guarded by its mu.
type queue struct {
	name    string
	waiting []item
	bytes   int
	dropped int64 // since the goroutine looked last
	said    bool  // that some were, since the queue was empty
}

type item struct {
	key     any // nil: none
	publish func()
	size    int
}

var extensionID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*Outlet) ExtensionID() extensions.ExtensionID { return extensionID }

// Of returns the outlet of a system.
func Of(system *actor.ActorSystem) *Outlet {
	return actors.Extension(system, extensionID, func() *Outlet {
		return &Outlet{system: system, events: queue{name: "events"}, letters: queue{name: "dead letters"}}
	})
}

// Measure counts what is dropped by the first MeterProvider that it is called with.
func (o *Outlet) Measure(p metric.MeterProvider) error {
	c, err := p.Meter("github.com/holdfast-go/holdfast/outlet").Int64Counter("holdfast.outlet.dropped",
		metric.WithDescription("Events and dead letters that were not published, as subscribers of the EventStream are too slow."))
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lost == nil {
		o.lost = c
	}
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
func (o *Outlet) Do(publish func()) { o.put(&o.events, item{publish: publish}) }

// Latest publishes an event, of which the last of its key always arrives: where the queue is full
// it takes the place of the one that waits.
func (o *Outlet) Latest(key, e any) {
	o.put(&o.events, item{key: key, publish: func() { o.system.EventStream.Publish(e) }})
}

// DeadLetter makes a dead letter of a message to pid.
func (o *Outlet) DeadLetter(pid *actor.PID, message any) {
	_, msg, sender := actor.UnwrapEnvelope(message)
	o.letter(pid, msg, sender, func() { o.system.DeadLetter.SendUserMessage(pid, message) })
}

// DeadSignal is DeadLetter for a system's message.
func (o *Outlet) DeadSignal(pid *actor.PID, message any) {
	o.letter(pid, message, nil, func() { o.system.DeadLetter.SendSystemMessage(pid, message) })
}

// letter queues a dead letter. Where it is dropped, a sender or a watcher that waits for what
// protoactor's own subscriber answers is answered here.
func (o *Outlet) letter(pid *actor.PID, message any, sender *actor.PID, publish func()) {
	if o.put(&o.letters, item{publish: publish, size: wire.Footprint(message)}) {
		return
	}
	if sender != nil {
		Tell(o.system, sender, &actor.DeadLetterResponse{Target: pid})
	}
	if w, ok := message.(*actor.Watch); ok {
		Signal(o.system, w.Watcher, &actor.Terminated{Who: pid, Why: actor.TerminatedReason_NotFound})
	}
}

// put queues an item; false if it is dropped.
func (o *Outlet) put(q *queue, it item) (fits bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if full := len(q.waiting) >= Limit || q.bytes > 0 && q.bytes+it.size > limitBytes; full {
		q.dropped++
		if it.key == nil {
			return false
		}
		if i := slices.IndexFunc(q.waiting, func(x item) bool { return x.key == it.key }); i >= 0 {
			q.waiting = slices.Delete(q.waiting, i, i+1)
		} else {
			q.dropped-- // one for each key has room
		}
	}
	q.waiting = append(q.waiting, it)
	q.bytes += it.size
	if !o.running {
		o.running = true
		go o.run()
	}
	return true
}

// run publishes what waits, and ends.
func (o *Outlet) run() {
	for {
		it, q, dropped, say, lost := o.next()
		if dropped > 0 && lost != nil {
			guard(o.system, "a meter", func() { lost.Add(context.Background(), dropped, metric.WithAttributes(attribute.String("of", q.name))) })
		}
		if say {
			guard(o.system, "a logger", func() {
				o.system.Logger().Error(q.name+" are dropped: a subscriber of the EventStream is too slow", slog.Int("limit", Limit))
			})
		}
		if it.publish == nil {
			return
		}
		guard(o.system, "a subscriber of the EventStream", it.publish)
	}
}

// next takes the next item off its queue, with what was dropped there; none if nothing waits, and
// run is to end.
func (o *Outlet) next() (it item, q *queue, dropped int64, say bool, lost metric.Int64Counter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q = &o.events
	if len(q.waiting) == 0 {
		q = &o.letters
	}
	if len(q.waiting) == 0 {
		o.running = false
		return item{}, q, 0, false, nil
	}
	it, q.waiting[0] = q.waiting[0], item{}
	q.waiting = q.waiting[1:]
	q.bytes -= it.size
	dropped, q.dropped = q.dropped, 0
	say = dropped > 0 && !q.said
	q.said = q.said || say
	if len(q.waiting) == 0 {
		q.waiting, q.said = nil, false
	}
	return it, q, dropped, say, o.lost
}

// guard calls code of users, and logs what it panics with.
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
