package singleton

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
)

// maxHops is a belt beside the tokens, which alone make loops impossible.
const maxHops = 16

// item is one message on its way: a local envelope, or one from another node
// that was not opened yet.
type item struct {
	envelope any
	wire     *wire.Envelope
}

// routed is the token by which the last node routed it; 0 if it comes from here.
func (it item) routed() lease.Token { return lease.Token(it.wire.GetToken()) }

// proxy routes mail: to the child behind its gate, to the node that hosts, or
// into a bounded buffer. It belongs to the controller's goroutine.
//
// Order is kept because there is one way at a time: while a gate is open or
// ending, everything goes through it, and what it refuses comes back before
// anything newer is routed elsewhere.
type proxy struct {
	*Manager
	self *actor.PID

	gate       *gate.Gate
	child      *actor.PID
	token      lease.Token // of the gate's term
	lives      int
	collecting bool   // the child is done; its mail is coming back
	backlog    []item // that came back
	held       buffer // came since collecting began

	host  lease.Record // who holds the lease, if known
	known bool

	buffer        buffer
	dropped       int
	undeliverable int

	looking bool // a look-up of the holder is under way
	served  bool // other nodes sent mail here
}

func (p *proxy) init(m *Manager) {
	p.Manager = m
	p.buffer = buffer{limit: m.set.buffer, policy: m.set.drop}
	p.held = p.buffer
}

// open lets mail through to a new child.
func (p *proxy) open(g *gate.Gate, child *actor.PID, t lease.Token) {
	p.gate, p.child, p.token = g, child, t
}

// collect begins to take the backlog of a child that is done.
func (p *proxy) collect(g *gate.Gate) {
	if g == p.gate && !p.collecting {
		p.collecting = true
		g.Post(&flushMark{})
	}
}

// back takes what the gate refused.
func (p *proxy) back(envelope any) { p.backlog = append(p.backlog, item{envelope: envelope}) }

// close forgets the gate, whose backlog is complete; it goes first from here on.
// It was accepted once, so the buffer's bound does not apply to it.
func (p *proxy) close() {
	p.gate, p.child, p.token, p.collecting = nil, nil, 0, false
	p.buffer.items = append(append(p.backlog, p.buffer.items...), p.held.items...)
	p.backlog, p.held.items = nil, nil
}

// outbound routes mail from this node.
func (p *proxy) outbound(envelope any) { p.accept(item{envelope: envelope}) }

// inbound routes mail from another node.
func (p *proxy) inbound(e *wire.Envelope) {
	it := item{wire: e}
	p.served = true
	switch {
	case e.Name != p.lname:
		p.reject(it, wire.Reason_REASON_NO_HOLDER, "addressed to another name's manager")
	case e.Hops > maxHops:
		p.reject(it, wire.Reason_REASON_TOO_MANY_HOPS, "")
	default:
		p.accept(it)
	}
}

// accept routes one message behind those that wait already.
func (p *proxy) accept(it item) {
	switch {
	case p.collecting:
		p.drop(p.held.push(it))
	case p.buffer.len() == 0 && p.send(it):
	default:
		p.drop(p.buffer.push(it))
		p.flush()
		p.lookUp()
	}
}

// flush sends what waits and can go, in order. What can't go yet (it was routed
// by knowledge newer than ours) is passed over: its sender's later messages were
// routed by no older knowledge, so they wait with it.
func (p *proxy) flush() {
	if p.collecting || p.buffer.len() == 0 {
		return
	}
	items := p.buffer.items
	p.buffer.items = nil
	for _, it := range items {
		if !p.send(it) {
			p.buffer.items = append(p.buffer.items, it)
		}
	}
}

// send delivers or forwards; false if there is nowhere to send to.
func (p *proxy) send(it item) bool {
	switch {
	case p.gate != nil:
		if p.token < it.routed() {
			return false
		}
		p.deliver(it)
	case p.remote() && p.host.Token > it.routed():
		p.forward(it)
	default:
		return false
	}
	return true
}

// remote reports whether another node is known to host.
func (p *proxy) remote() bool {
	return p.known && p.host.Owner.Address != "" && p.host.Owner.Address != p.self.Address &&
		(p.keeper == nil || p.host.Owner.Incarnation != p.keeper.Owner().Incarnation)
}

// deliver hands a message to the child's gate.
func (p *proxy) deliver(it item) {
	if it.wire != nil {
		msg, err := wire.Default.Decode(it.wire.Type, it.wire.Codec, it.wire.Payload)
		if err != nil {
			p.reject(it, wire.ReasonOf(err), err.Error())
			return
		}
		it.envelope = envelope(msg, it.wire.Sender.PID(), it.wire.Headers)
	}
	p.gate.Post(it.envelope)
}

// forward sends a message to the manager on the host's node.
func (p *proxy) forward(it item) {
	e := it.wire
	if e == nil {
		header, msg, sender := actor.UnwrapEnvelope(it.envelope)
		typ, codec, payload, err := wire.Default.Encode(msg, remoting.PayloadLimit(p.system))
		if err != nil {
			p.reject(it, wire.ReasonOf(err), err.Error())
			return
		}
		e = &wire.Envelope{Name: p.lname, Type: typ, Codec: codec, Payload: payload,
			Sender: wire.AddressOf(sender), Request: sender != nil}
		if header != nil && header.Length() > 0 {
			e.Headers = header.ToMap()
		}
	} else {
		e = proto.CloneOf(e)
		e.Hops++
	}
	e.Token = uint64(p.host.Token)
	p.system.Root.Send(actor.NewPID(p.host.Owner.Address, managerID(p.name)), e)
}

// setHost takes up who holds the lease.
func (p *proxy) setHost(r lease.Record, known bool) {
	p.host, p.known = r, known
	p.flush()
}

// lookUpEvery is the pause between looks for the holder where records can't be
// followed.
const lookUpEvery = time.Second

// lookUp asks who holds the lease, where nobody tells: as long as mail waits.
// What it finds is used for what waits, then forgotten.
func (p *proxy) lookUp() {
	if p.dir != nil || p.looking || p.buffer.len() == 0 || p.gate != nil {
		return
	}
	f, ok := lease.As[lease.HolderFinder](p.lease)
	if !ok {
		return
	}
	p.looking = true
	p.ops.Go(func() {
		ctx, cancel := context.WithTimeout(p.life, 5*time.Second)
		defer cancel()
		rec, known, err := f.Holder(ctx)
		if err != nil {
			p.log.Debug("who hosts is not known", zap.Error(err))
		}
		p.system.Root.Send(p.self, &holderFound{rec, known && err == nil})
	})
}

func (p *proxy) found(msg *holderFound) {
	p.setHost(msg.record, msg.known)
	p.clock.AfterFunc(lookUpEvery, func() { p.system.Root.Send(p.self, &holderStale{}) })
}

func (p *proxy) stale() {
	p.host, p.known, p.looking = lease.Record{}, false, false
	p.lookUp()
}

// reject gives a message up for good: to the dead letters, and with word to its
// sender if that waits for a reply.
func (p *proxy) reject(it item, reason wire.Reason, detail string) {
	p.undeliverable++
	nack := &Undeliverable{Reason: reason, Name: p.lname, Detail: detail}
	var sender *actor.PID
	if it.wire != nil {
		nack.Type, nack.Sequence, nack.Key = it.wire.Type, it.wire.Sequence, it.wire.Key
		sender = it.wire.Sender.PID()
	} else {
		_, msg, s := actor.UnwrapEnvelope(it.envelope)
		nack.Type, sender = typeName(msg), s
	}
	p.log.Warn("undeliverable message", zap.Stringer("reason", reason), zap.String("type", nack.Type), zap.String("detail", detail))
	if sender != nil {
		p.system.Root.Send(sender, nack)
	}
	// Without its sender: the dead letters would answer it a second time.
	_, msg, _ := actor.UnwrapEnvelope(it.envelope)
	if it.wire != nil {
		msg = it.wire
	}
	p.system.DeadLetter.SendUserMessage(p.self, msg)
}

// drop gives up what found a buffer full.
func (p *proxy) drop(it item, dropped bool) {
	if !dropped {
		return
	}
	p.dropped++
	msg := it.envelope
	if it.wire != nil {
		msg = envelope(it.wire, it.wire.Sender.PID(), nil)
	}
	p.system.DeadLetter.SendUserMessage(p.self, msg) // which tells its sender
}

// shut gives up everything that is left.
func (p *proxy) shut() {
	if p.gate != nil {
		p.close()
	}
	for _, it := range p.buffer.items {
		p.drop(it, true)
	}
	p.buffer.items = nil
}

func (p *proxy) status() Status {
	s := Status{Token: p.token, Lives: p.lives, Buffered: p.buffer.len() + len(p.backlog) + p.held.len(),
		Dropped: p.dropped, Undeliverable: p.undeliverable}
	if p.known {
		s.Host = p.host.Owner
	}
	return s
}
