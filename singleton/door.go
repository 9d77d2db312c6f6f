package singleton

import (
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/fastpath"
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// door is where mail for the singleton comes in, on the goroutine of its sender, or of the
// link that brought it. While it is open, mail goes on from there, past the controller:
//
//	             reopen                                  reopen
//	here ◀───────────────────────── shut ─────────────────────────▶ there
//	into the child's gate            waits for the controller        to the node that hosts
//	  └──── the controller is about to do anything, or a message waits ────▶ shut
//
// The controller opens it when it has done what there was to do, and has left it in a state
// in which nothing waits that mail could overtake (route.Router: Direct, Through). It shuts
// it before it does anything else, and mail that is not for the open way shuts it, too. So
// what the controller does finds all that went before with the gate, or with the channel,
// and all that comes after waits.
type door struct {
	p     *proxy
	inner actor.Mailbox // of the controller

	mu      sync.RWMutex
	here    *gate.Gate  // nil: it is not open to the child
	own     lease.Token // here: that mail is routed to it by, or by a lower one
	there   *wire.Node  // nil: it is not open to another node
	token   lease.Token // there: by which it hosts
	plain   bool        // there: it takes plain messages, as far as is known
	path    fastpath.Path
	out     transport.Outbox
	went    bool      // mail went there since it was opened
	waiting []waiting // for the controller, in order
	bytes   int       // about
	called  bool      // it was told to take them
	short   fastpath.Sender

	opened atomic.Int32 // what it was when it was reopened or shut last: a hint
}

const (
	openNowhere = iota
	openHere
	openThere
)

// mostAtDoor bounds how many messages wait for the controller, unless the buffer is larger. About
// how large they are is bounded by maxBuffered, and what was handed over by another node by
// maxCustody besides.
const mostAtDoor = 10_000

// waiting is a message that waits for the controller.
type waiting struct {
	message any
	size    int
}

func newDoor(p *proxy) *door {
	d := &door{p: p}
	// No other family has the first segment: a % is of an escape, which goes on in another way.
	d.short = fastpath.Sender{System: p.system, Family: named("%s", p.name), Codec: wire.CodecProto, Lost: &p.lost,
		Takes: func(string) (can, known bool) { return d.plain, true }}
	d.out.Init(transport.Of(p.system), p, p.pid.Id, p.payload+wire.Headroom, &p.lost)
	return d
}

// serve has other nodes reach the door by plain messages, until stop is called.
func (d *door) serve() (stop func()) {
	return actors.FamiliesOf(d.p.system).Serve(d.short.Family, func(rest string) (actor.Process, bool) {
		token, key, ok := fastpath.Split(rest)
		if !ok || key != "" {
			return nil, false
		}
		return &fastProcess{d, token}, true
	})
}

// post takes a message that was sent to the manager's PID.
func (d *door) post(message any) {
	switch m := actor.UnwrapEnvelopeMessage(message).(type) {
	case *told:
		d.inner.PostUserMessage(m.what)
	case *wire.Envelope:
		d.arrived(m)
	case *transport.Kept:
		if _, ok := m.What.(*wire.Envelope); ok {
			d.wait(message)
			return
		}
		d.inner.PostUserMessage(message)
	case *wire.Marker, *wire.MarkerAck, *wire.MarkerWaits, *wire.Candidate, *wire.Invite, *wire.Offer, *wire.HandedOver, *wire.EntityState,
		actor.SystemMessage, actor.AutoReceiveMessage, actor.MailboxMessage: // of the manager's own life, or to be turned away
		d.inner.PostUserMessage(message)
	case actor.MessageBatch: // as protoactor's mailboxes do
		for _, x := range m.GetMessages() {
			d.post(x)
		}
		d.mail(message)
	default:
		d.mail(message)
	}
}

// mail takes a message of this node.
func (d *door) mail(message any) {
	msg := actor.UnwrapEnvelopeMessage(message)
	switch {
	case wire.OfSystem(msg):
		d.inner.PostUserMessage(message)
	case d.opened.Load() == openHere && d.hand(message, 0, false):
	case d.opened.Load() == openThere && d.send(message):
	default:
		d.wait(message)
	}
}

// hand gives a message to the child, past the controller; false if the door is not open
// that way, or the message was routed by newer knowledge than this node's.
func (d *door) hand(message any, routed lease.Token, remote bool) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.here == nil || routed > d.own {
		return false
	}
	if remote && !d.p.served.Load() {
		d.p.served.Store(true)
	}
	d.here.Post(message)
	return true
}

// send sends a message to the node that hosts, past the controller; false if the door is
// not open that way, or there is no room.
func (d *door) send(message any) bool {
	// Outside of the lock: others may encode meanwhile.
	var m fastpath.Mail
	if !m.Encode("", message, d.p.payload, func(_ string, envelope any) (*wire.Envelope, error) {
		return wire.Default.Envelop(envelope, d.p.payload)
	}) {
		return false // the Router refuses it
	}
	if !d.straight(&m) {
		return false
	}
	m.Flush()
	return true
}

// straight queues a message for the node that hosts; false if something holds it up.
func (d *door) straight(m *fastpath.Mail) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.there == nil {
		return false
	}
	ok := d.short.Send(&d.path, &d.out, &d.p.asked, m, d.p.lname, d.there, d.token)
	d.went = d.went || ok
	return ok
}

// arrived takes an envelope of another node.
func (d *door) arrived(e *wire.Envelope) {
	straight := d.opened.Load() == openHere && e.Name == d.p.lname && e.Hops == 0 && (e.Codec == wire.CodecProto || e.Codec == wire.CodecJSON)
	if straight && wire.Fits(e) {
		if msg, err := wire.Default.Open(e); err == nil && !ofLife(msg) {
			d.p.asked.Came(d.p.system, e.Sender)
			if d.hand(wire.Local(msg, e.Sender.PID(), e.Headers), lease.Token(e.Token), true) {
				return
			}
		}
	}
	d.wait(e)
}

// wait shuts the door and leaves a message to the controller, which takes what waits in
// its turn. Where too much waits, one is dropped.
func (d *door) wait(message any) {
	switch dropped := d.put(waiting{message, footprint(message)}); {
	case dropped == nil:
	case d.p.over.Load():
		d.afterEnd(dropped)
	default:
		d.p.Drop(itemOf(dropped), "too much waits for the manager")
	}
}

// put returns what there is no room for; nil if there is.
func (d *door) put(w waiting) (dropped any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shutLocked()
	if d.p.over.Load() {
		return w.message
	}
	most := maxBuffered
	if _, kept := w.message.(*transport.Kept); kept {
		most += maxCustody
	}
	if n := len(d.waiting); n > 0 && (n >= max(mostAtDoor, d.p.set.buffer) || d.bytes+w.size > most) {
		if d.p.set.drop != hosting.DropOldest {
			return w.message
		}
		dropped = d.waiting[0].message
		d.bytes -= d.waiting[0].size
		d.waiting[0] = waiting{}
		d.waiting = d.waiting[1:]
	}
	d.waiting = append(d.waiting, w)
	d.bytes += w.size
	if !d.called { // what the mailbox gets later comes after it
		d.called = true
		d.inner.PostUserMessage(command(d.takeMail))
	}
	return dropped
}

// footprint is about how large a message is that waits.
func footprint(message any) int {
	message, _ = transport.Unwrap(message)
	if e, ok := message.(*wire.Envelope); ok {
		return e.Footprint()
	}
	return actors.Footprint(message)
}

// itemOf is a message that waits at the door, as the Router has it.
func itemOf(message any) *route.Item {
	what, _ := transport.Unwrap(actor.UnwrapEnvelopeMessage(message))
	if e, ok := what.(*wire.Envelope); ok {
		return &route.Item{Wire: e}
	}
	return &route.Item{Local: message}
}

// afterEnd makes a dead letter of what the controller, which has ended, would have got.
func (d *door) afterEnd(message any) {
	switch m := message.(type) {
	case nil, command, event: // what waits at the door is taken from there
		return
	case *diverted:
		message = m.envelope
	}
	d.p.Drop(itemOf(message), "the manager has ended")
}

func (d *door) shutLocked() {
	d.here, d.there = nil, nil
	d.opened.Store(openNowhere)
}

// shut is called by the controller before it does anything: what went past it is with the
// gate, or the channel, and the Router hears of it.
func (d *door) shut() {
	d.mu.Lock()
	went := d.went
	d.shutLocked()
	d.went = false
	d.mu.Unlock()
	if went {
		d.p.Went()
	}
}

// take returns what waits.
func (d *door) take() (mail []waiting) {
	d.mu.Lock()
	defer d.mu.Unlock()
	mail, d.waiting, d.bytes, d.called = d.waiting, nil, 0, false
	return mail
}

// reopen is called by the controller when it has done all: it opens the door if nothing
// waits that mail could overtake.
func (d *door) reopen() {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.p
	if d.called || len(d.waiting) > 0 || p.over.Load() {
		return
	}
	if p.gate != nil && p.Direct() {
		d.here, d.own = p.gate, p.Own()
		d.opened.Store(openHere)
	} else if node, token, ok := p.Through(); ok {
		d.there, d.token = node, token
		if plain := p.host.takesPlain(node); plain != d.plain {
			d.plain, d.path = plain, fastpath.Path{}
		}
		d.opened.Store(openThere)
	}
}

// takeMail routes what waits at the door.
func (d *door) takeMail() {
	for _, w := range d.take() {
		d.takeOne(w.message)
	}
}

// takeOne survives what it panics with, for the sake of the rest.
func (d *door) takeOne(envelope any) {
	p := d.p
	defer boundary.Survive(p.log, "a message was not routed")
	message, kept := transport.Unwrap(actor.UnwrapEnvelopeMessage(envelope))
	switch {
	case !wire.Fits(message):
		p.outlet.DeadLetter(p.pid, message)
	case !p.Receive(message, kept):
		p.outbound(envelope)
	}
}

// fastProcess is what other nodes send plain messages to.
type fastProcess struct {
	d     *door
	token lease.Token
}

// SendUserMessage implements actor.Process. It runs on the goroutine that read the message
// from a link.
func (s *fastProcess) SendUserMessage(pid *actor.PID, message any) {
	d := s.d
	msg := actor.UnwrapEnvelopeMessage(message)
	if msg == nil || ofLife(msg) || d.p.over.Load() {
		d.p.outlet.DeadLetter(fastpath.Addressee(d.p.system, pid), message)
		return
	}
	if d.opened.Load() == openHere && !wire.IsUnread(message) && d.hand(message, s.token, true) {
		return
	}
	e, err := wire.Default.Envelop(message, d.p.payload) // it came as a message that can be encoded
	if err != nil {
		d.p.outlet.DeadLetter(fastpath.Addressee(d.p.system, pid), message)
		return
	}
	e.Name, e.Token, e.Left = d.p.lname, uint64(s.token), fastpath.Left(pid)
	d.wait(e)
}

// SendSystemMessage implements actor.Process: a watcher learns that there is no actor.
func (s *fastProcess) SendSystemMessage(pid *actor.PID, message any) {
	s.d.p.outlet.DeadSignal(fastpath.Addressee(s.d.p.system, pid), message)
}

// Stop implements actor.Process: it can't be stopped.
func (*fastProcess) Stop(*actor.PID) {}

// deadLetterMailbox is a manager's mailbox. What is still in it when the actor has ended,
// or gets there later through a PID that was resolved before, goes to the dead
// letters, as does all that is sent to an ended actor; protoactor drops it in
// silence. What only an actor system may say of an actor's life is turned away.
type deadLetterMailbox struct {
	actor.Mailbox
	actor.MessageInvoker
	door *door
}

func (b *deadLetterMailbox) RegisterHandlers(next actor.MessageInvoker, d actor.Dispatcher) {
	b.MessageInvoker = next
	b.Mailbox.RegisterHandlers(b, d)
}

// PostUserMessage turns nil away: protoactor's mailboxes count it, and never find it.
func (b *deadLetterMailbox) PostUserMessage(message any) {
	if message == nil {
		b.door.p.outlet.DeadLetter(b.door.p.pid, message)
		return
	}
	b.door.post(message)
}

func (b *deadLetterMailbox) InvokeUserMessage(message any) {
	if b.door.p.over.Load() {
		b.door.afterEnd(message)
		return
	}
	msg := actor.UnwrapEnvelopeMessage(message)
	if _, poison := msg.(*actor.PoisonPill); poison || wire.OfSystem(msg) {
		b.door.p.outlet.DeadLetter(b.door.p.pid, message)
		return
	}
	b.MessageInvoker.InvokeUserMessage(message)
}

// divert sends the actor what a gate refused. If it has ended, as one that is stopped by
// force may before the mailbox of its child is empty, that is a dead letter.
func (d *door) divert(g *gate.Gate, envelope any) {
	p := d.p
	msg := &diverted{g, envelope}
	if actor, ok := p.system.ProcessRegistry.GetLocal(p.pid.Id); ok {
		actor.SendUserMessage(p.pid, &told{msg})
	} else {
		d.afterEnd(msg)
	}
}
