package transport

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// Owner has mail on a channel. Its methods are called on any goroutine, under no lock,
// and must not block. It is compared by ==.
type Owner interface {
	// Linked says that there is room on the channel to address, which the owner waited
	// for; that a new link goes on with its frames; or that all of them were taken.
	Linked(address string)
	// Returned gives kept mail back, in order, that was not taken and will not be:
	// another node lives at address now, or none was heard of for long.
	Returned(address string, items []any)
	// Held counts its frames that no peer has taken yet.
	Held() *atomic.Int64
}

// Peer is the channel to one address. Straight, Keep, Control, Wait and Recall only
// queue, and may be called under an owner's lock; what they queued goes out with Flush,
// which may not. What one goroutine queues under one lock goes out in that order.
type Peer struct {
	node    *Node
	address string

	mu       sync.Mutex
	s        sender
	spare    []outgoing
	draining bool
	stale    atomic.Bool   // a newer Peer may have the address
	used     time.Duration // when To returned it last; under Node.mu
	timer    *time.Timer
	timerAt  time.Duration

	back     []returned // by what was heard; for settle
	heard    bool       // settle has to run
	settling bool       // it does
}

// lock locks the channel that the address has now: this one may have been given up since
// it was found, and two would take each other's numbers.
func (p *Peer) lock() *Peer {
	for {
		p.mu.Lock()
		if !p.stale.Load() {
			return p
		}
		p.mu.Unlock()
		p = p.node.To(p.address)
	}
}

// Room reports whether mail may go now.
func (p *Peer) Room() bool {
	p = p.lock()
	defer p.mu.Unlock()
	return p.s.room()
}

// Parcel is a message that a channel has room for. The zero value is none. It is filled in
// where it is: to copy it costs as much as a lock.
type Parcel struct {
	peer *Peer
	link uint64
	mail outgoing // without address: it was queued
}

// Link is the number of the link that it goes over: the present one of the channel is
// higher once that has broken.
func (c *Parcel) Link() uint64 { return c.link }

// Straight makes c a message of size bytes for an actor there, which Flush of c sends; false
// if there is no room. If it is not known to have arrived when its link breaks, lost grows
// by one.
func (p *Peer) Straight(c *Parcel, to *actor.PID, msg any, size int, lost *atomic.Int64) (ok bool) {
	p = p.lock()
	defer p.mu.Unlock()
	if !p.s.room() {
		return false
	}
	c.peer = p
	if p.draining || len(p.s.out) > 0 || p.s.link == 0 {
		c.link = p.straightLocked(to, msg, size, lost)
		return true
	}
	// Nothing is before it: the sender need not queue it.
	p.draining = true
	c.mail.to, c.mail.msg, c.mail.lost = to, msg, lost
	c.link = p.straightLocked(nil, nil, size, lost)
	p.armLocked() // the send may take long
	return true
}

// Flush sends what was queued.
func (c *Parcel) Flush() {
	p := c.peer
	if c.mail.to == nil {
		p.Flush()
		return
	}
	p.send(&c.mail)
	p.sent()
}

// sent goes on with what was queued while a Parcel was sent.
func (p *Peer) sent() {
	p.mu.Lock()
	p.draining = false
	done := len(p.s.out) == 0 && !p.s.unprobed() && len(p.s.told) == 0
	p.mu.Unlock()
	if !done {
		p.Flush()
	}
}

// straightLocked reads the clock only where the time makes a difference.
func (p *Peer) straightLocked(to *actor.PID, msg any, size int, lost *atomic.Int64) (link uint64) {
	now := p.s.since
	if !p.s.plain(size) {
		now = p.node.now()
	}
	return p.s.straight(to, msg, size, lost, now)
}

// Send is Straight for a caller that has asked for Room: it may go beyond the window by the few
// messages for which several ask at once. It returns what Parcel.Link does.
func (p *Peer) Send(to *actor.PID, msg any, size int, lost *atomic.Int64) (link uint64) {
	p = p.lock()
	defer p.mu.Unlock()
	return p.straightLocked(to, msg, size, lost)
}

// Keep queues what o hands to the actor called to there, and keeps it until the node
// has taken it. item is what o gets back if that never happens. It is for the owner to
// ask for Room first. false: no message may be that large, limit being the bound.
func (p *Peer) Keep(o Owner, item any, to string, what *wire.Frame, limit int) bool {
	what.To, what.From = to, p.s.self
	size := proto.Size(what)
	if size+overhead > limit {
		return false
	}
	p = p.lock()
	defer p.mu.Unlock()
	p.s.keep(frame{owner: o, item: item, msg: what, size: size}, p.node.now())
	return true
}

// Control queues a message about mail, behind the mail that went before. It needs no
// room: its sender has one under way at a time.
func (p *Peer) Control(to *actor.PID, msg any) {
	p = p.lock()
	defer p.mu.Unlock()
	p.s.control(to, msg, p.node.now())
}

// Wait has o told once, with Room, when there is room.
func (p *Peer) Wait(o Owner) {
	p = p.lock()
	defer p.mu.Unlock()
	p.s.wait(o, p.node.now())
}

// State returns the life that answered last, empty if none has, and whether the link
// is up.
func (p *Peer) State() (life string, up bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.s.peer, p.s.up
}

// Recall takes back, in order, what o keeps and the node has not acknowledged, if the
// link is broken: it may have taken it all the same. While the link lives it will.
func (p *Peer) Recall(o Owner) (items []any) {
	p = p.lock()
	defer p.mu.Unlock()
	if p.s.up {
		return nil
	}
	for _, r := range p.s.recall(o) {
		items = r.items
	}
	return items
}

// Flush sends what was queued.
func (p *Peer) Flush() { p.do(nil) }

// do feeds the sender, if f is given, tells that the link broke, sends what is queued, and tells
// owners.
func (p *Peer) do(f func(s *sender, now time.Duration) []returned) {
	p = p.lock()
	var back []returned
	if f != nil {
		back = f(&p.s, p.node.now())
	}
	for p.s.broke || p.s.redial {
		p = p.tellLocked()
	}
	p.armLocked() // a send may take long
	p.drainLocked()
	owners := p.s.roomy()
	p.armLocked()
	p.mu.Unlock()
	for _, r := range back {
		r.owner.Returned(p.address, r.items)
	}
	for _, o := range owners {
		o.Linked(p.address)
	}
}

// tellLocked tells that the link broke, with mu free meanwhile: before anything is sent over
// the next one, as a send may take long. It returns the channel that it has locked.
func (p *Peer) tellLocked() *Peer {
	broke, redial := p.s.broke, p.s.redial && !p.draining // a send that hangs here says nothing of the link
	p.s.broke, p.s.redial = false, false
	p.mu.Unlock()
	if broke {
		p.node.broke(p.address)
	}
	if redial {
		p.node.redial(p.address)
	}
	return p.lock()
}

// hear takes what a link says: an answer, or that it broke. What that leads to goes by another
// goroutine: sending runs users' code, and one that hangs must not end what is read.
func (p *Peer) hear(f func(s *sender, now time.Duration) []returned) {
	p = p.lock()
	defer p.mu.Unlock()
	p.back = append(p.back, f(&p.s, p.node.now())...)
	p.heard = true
	if !p.settling {
		p.settling = true
		go p.settle()
	}
}

// settle does what was heard leads to: one goroutine at a time, so that what returns does so in
// order.
func (p *Peer) settle() {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.settling = p.heard; p.settling {
			go p.settle()
		}
	}()
	p.do(func(*sender, time.Duration) []returned {
		back := p.back
		p.back, p.heard = nil, false
		return back
	})
}

// armLocked sets the timer for what is due next.
func (p *Peer) armLocked() {
	at := p.s.due()
	if at < 0 || p.timer != nil && p.timerAt <= at {
		return
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	var t *time.Timer
	t = time.AfterFunc(max(0, at-p.node.now()), func() {
		p.do(func(s *sender, now time.Duration) []returned {
			if p.timer == t {
				p.timer = nil
			}
			return s.tick(now)
		})
	})
	p.timer, p.timerAt = t, at
}

// retire makes it stale, if nothing is on its way and no owner waits; then it returns the
// number of its link.
func (p *Peer) retire() (link uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ok = p.s.idle() && !p.draining && !p.settling
	p.stale.Store(ok)
	if ok && p.timer != nil {
		p.timer.Stop()
	}
	return p.s.link, ok
}

// This part hands what a Peer has queued to remote.

// maxSpare is the largest queue whose memory is kept for the next burst.
const maxSpare = 1024

// maxBatches is how many times one Flush comes back to what others queue meanwhile.
const maxBatches = 16

// drainLocked hands what is queued to remote, in order: one goroutine at a time, with
// mu free meanwhile.
func (p *Peer) drainLocked() {
	if p.draining {
		return // who drains comes to it
	}
	p.draining = true
	for n := 0; ; n++ {
		if n == maxBatches {
			go p.resume() // for a while: the caller sends for others
			return
		}
		if len(p.s.out) == 0 {
			if !p.s.unprobed() {
				break
			}
			p.s.probe(p.node.now())
		}
		batch := p.s.out
		p.s.out, p.spare = p.spare[:0], nil
		p.mu.Unlock()
		for i := range batch {
			p.send(&batch[i])
		}
		p.mu.Lock()
		clear(batch)
		if cap(batch) <= maxSpare {
			p.spare = batch[:0]
		}
	}
	p.draining = false
}

// resume goes on with what drainLocked left.
func (p *Peer) resume() {
	p.mu.Lock()
	p.draining = false
	p.mu.Unlock()
	p.Flush()
}

// send sends one message. A sender middleware, or a subscriber of dead letters, may panic within:
// the message may not have been sent, and the channel goes on with those behind it.
func (p *Peer) send(o *outgoing) {
	defer func() {
		if r := recover(); r != nil {
			p.unsent(o, r)
		}
	}()
	p.node.system.Root.Send(o.to, o.msg)
}

// unsent counts a straight message that may not have been sent, and tells its asker: without a
// deadline that would wait for ever.
func (p *Peer) unsent(o *outgoing, reason any) {
	if o.lost != nil {
		o.lost.Add(1)
		from := actor.UnwrapEnvelopeSender(o.msg)
		if e, ok := o.msg.(*wire.Envelope); ok {
			from = e.Sender.PID()
		}
		if asker, _ := wire.AskerOf(p.node.system, from.GetAddress(), from.GetId()); asker != nil {
			asker.Unconfirmed()
		}
	}
	p.node.log("a message was not sent", reason)
}

// Outbox is what one owner sends through: it finds the channels, and knows which were
// used since they were flushed last. It belongs to its owner, and is used under the
// owner's lock, or on its goroutine, but for Held.
type Outbox struct {
	node  *Node
	owner Owner
	to    string        // the actor on other nodes that mail is for
	limit int           // of one message, in bytes
	lost  *atomic.Int64 // straight mail that is not known to have arrived

	held    atomic.Int64
	address string // of the channel that was used last
	peer    *Peer
	pid     *actor.PID
	touched []*Peer
}

// Init makes an Outbox usable: for mail of owner to the actor called to of other nodes,
// in messages of at most limit bytes.
func (o *Outbox) Init(n *Node, owner Owner, to string, limit int, lost *atomic.Int64) {
	o.node, o.owner, o.to, o.limit, o.lost = n, owner, to, limit, lost
}

// Channel returns the channel to address, for a caller that flushes it.
func (o *Outbox) Channel(address string) *Peer {
	if o.peer == nil || o.address != address || o.peer.stale.Load() {
		o.peer, o.address, o.pid = o.node.To(address), address, actor.NewPID(address, o.to)
	}
	return o.peer
}

// PID returns the actor at address that mail is for.
func (o *Outbox) PID(address string) *actor.PID {
	o.Channel(address)
	return o.pid
}

// touch returns the channel to address, and notes that it has to be flushed.
func (o *Outbox) touch(address string) *Peer {
	p := o.Channel(address)
	if !slices.Contains(o.touched, p) {
		o.touched = append(o.touched, p)
	}
	return p
}

// Room reports whether mail may go to address; if not, the owner hears when it may.
func (o *Outbox) Room(address string) bool {
	p := o.touch(address)
	if p.Room() {
		return true
	}
	p.Wait(o.owner)
	return false
}

// Send queues a message that is not kept. Mail takes room; messages about mail do not. Of
// mail, it returns the number of the link that it goes over.
func (o *Outbox) Send(address string, msg proto.Message) (link uint64) {
	p := o.touch(address)
	if e, ok := msg.(*wire.Envelope); ok {
		return p.Send(o.pid, e, e.Footprint(), o.lost)
	}
	p.Control(o.pid, msg)
	return 0
}

// Link is Node.Link.
func (o *Outbox) Link(address string) uint64 { return o.node.Link(address) }

// Keep queues what the node at address is to take custody of; false if it is too large.
func (o *Outbox) Keep(address string, item any, msg proto.Message) bool {
	f := &wire.Frame{}
	switch m := msg.(type) {
	case *wire.Envelope:
		f.What = &wire.Frame_Envelope{Envelope: m}
	case *wire.Marker:
		f.What = &wire.Frame_Marker{Marker: m}
	case *wire.EntityState:
		f.What = &wire.Frame_State{State: m}
	case *wire.HandedOver:
		f.What = &wire.Frame_HandedOver{HandedOver: m}
	}
	return o.touch(address).Keep(o.owner, item, o.to, f, o.limit)
}

// Recall takes back what is kept for address, if its link is broken.
func (o *Outbox) Recall(address string) []any { return o.touch(address).Recall(o.owner) }

// Leave ends it; under no lock.
func (o *Outbox) Leave() {
	if o.node != nil {
		o.node.Leave(o.owner)
	}
}

// Held counts what no peer has taken custody of yet.
func (o *Outbox) Held() *atomic.Int64 { return &o.held }

// Touched returns the channels that were used since it was called last: each has to be
// flushed, under no lock.
func (o *Outbox) Touched() []*Peer {
	t := o.touched
	o.touched = nil
	return t
}
