package singleton

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
)

// How long a move of the singleton may hold mail back for the sake of its order,
// and after how long without mail it need not.
const (
	patience = time.Second
	rest     = 5 * time.Second
)

// proxy is the world around the Router of the singleton's mail: the child's gate,
// other nodes' managers, the dead letters. It belongs to the controller's
// goroutine.
type proxy struct {
	*Manager
	*route.Router
	self *actor.PID
	over atomic.Bool // the actor has ended: there is nobody to tell anything

	gate       *gate.Gate
	child      *actor.PID
	token      lease.Token // of the gate's term
	lives      int
	collecting bool // the child is done; its mail is coming back

	host  lease.Record // who holds the lease, if known
	known bool

	dropped       int
	undeliverable int

	wake    lease.Timer
	wakeAt  time.Duration
	wakes   int
	looking bool // a look-up of the holder is under way
}

func (p *proxy) init(m *Manager) {
	p.Manager = m
	self := &wire.Node{Address: m.system.Address(), Incarnation: m.system.ID}
	if m.keeper != nil {
		self.Incarnation = m.keeper.Owner().Incarnation
	}
	p.Router = route.New(route.Config{Name: m.lname, Self: self, Limit: m.set.buffer, Policy: m.set.drop,
		Patience: patience, Rest: rest}, p)
}

// post sends to the actor from anywhere, until it has ended. (Manager.pid is set
// by Start, which may not have returned yet.)
func (p *proxy) post(msg any) {
	if !p.over.Load() {
		p.system.Root.Send(p.self, msg)
	}
}

// open lets mail through to a new child.
func (p *proxy) open(g *gate.Gate, child *actor.PID, t lease.Token) {
	p.gate, p.child, p.token = g, child, t
}

// collect begins to take the backlog of a child that is done.
func (p *proxy) collect(g *gate.Gate) {
	if g == p.gate && !p.collecting {
		p.collecting = true
		p.Ending()
		g.Post(&flushMark{})
	}
}

// close forgets the gate, whose backlog is complete.
func (p *proxy) close() {
	p.gate, p.child, p.token, p.collecting = nil, nil, 0, false
	p.Closed()
	p.lookUp()
}

// outbound routes mail from this node.
func (p *proxy) outbound(envelope any) {
	p.Accept(envelope)
	p.lookUp()
}

// setHost takes up who holds the lease.
func (p *proxy) setHost(r lease.Record, known bool) {
	p.host, p.known = r, known
	p.Host(wire.NodeOf(r.Owner), r.Token, known)
}

// Deliver implements route.Port.
func (p *proxy) Deliver(it route.Item) {
	envelopeHere := it.Local
	if e := it.Wire; e != nil {
		msg, err := wire.Default.Decode(e.Type, e.Codec, e.Payload)
		if err != nil {
			p.Refuse(it, wire.ReasonOf(err), err.Error())
			return
		}
		envelopeHere = wire.Local(msg, e.Sender.PID(), e.Headers)
	}
	p.gate.Post(envelopeHere)
}

// Send implements route.Port.
func (p *proxy) Send(address string, msg proto.Message) {
	if address == p.system.Address() {
		p.system.Root.Send(p.self, msg) // an answer to ourselves
		return
	}
	p.system.Root.Send(actor.NewPID(address, managerID(p.name)), msg)
}

// Encode implements route.Port.
func (p *proxy) Encode(local any) (*wire.Envelope, error) {
	header, msg, sender := actor.UnwrapEnvelope(local)
	typ, codec, payload, err := wire.Default.Encode(msg, remoting.PayloadLimit(p.system))
	if err != nil {
		return nil, err
	}
	e := &wire.Envelope{Type: typ, Codec: codec, Payload: payload, Sender: wire.AddressOf(sender), Request: sender != nil}
	if header != nil && header.Length() > 0 {
		e.Headers = header.ToMap()
	}
	return e, nil
}

// Now implements route.Port.
func (p *proxy) Now() time.Duration { return p.clock.Now().Mono }

// Wake implements route.Port: of several the earliest counts, and Tick asks
// again for the rest.
func (p *proxy) Wake(d time.Duration) {
	at := p.Now() + d
	if p.wake != nil && p.wakeAt <= at {
		return
	}
	halt(p.wake)
	p.wakes++
	n := p.wakes
	p.wakeAt = at
	p.wake = p.clock.AfterFunc(d, func() { p.post(&routeDue{n}) })
}

func (p *proxy) due(msg *routeDue) {
	if msg.number == p.wakes {
		p.wake = nil
		p.Tick()
	}
}

// Soon implements route.Port.
func (p *proxy) Soon() { p.post(&ackDue{}) }

// lookUpEvery is the pause between looks for the holder where records can't be
// followed.
const lookUpEvery = time.Second

// lookUp asks who holds the lease, where nobody tells: as long as mail waits.
// What it finds is used for what waits, then forgotten.
func (p *proxy) lookUp() {
	if p.dir != nil || p.looking || p.gate != nil || p.Stats().Buffered == 0 {
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
		p.post(&holderFound{rec, known && err == nil})
	})
}

func (p *proxy) found(msg *holderFound) {
	p.setHost(msg.record, msg.known)
	p.clock.AfterFunc(lookUpEvery, func() { p.post(&holderStale{}) })
}

func (p *proxy) stale() {
	p.looking = false
	p.setHost(lease.Record{}, false)
	p.lookUp()
}

// Refuse implements route.Port: a message is given up for good, to the dead
// letters, and with word to its sender if that waits for a reply.
func (p *proxy) Refuse(it route.Item, reason wire.Reason, detail string) {
	p.undeliverable++
	nack := &Undeliverable{Reason: reason, Name: p.lname, Detail: detail}
	var sender *actor.PID
	// Without its sender: the dead letters would answer it a second time.
	_, msg, _ := actor.UnwrapEnvelope(it.Local)
	if e := it.Wire; e != nil {
		nack.Type, nack.Sequence, nack.Key = e.Type, e.Sequence, e.Key
		sender, msg = e.Sender.PID(), e
	} else {
		nack.Type = wire.TypeName(msg)
		_, _, sender = actor.UnwrapEnvelope(it.Local)
	}
	p.log.Warn("undeliverable message", zap.Stringer("reason", reason), zap.String("type", nack.Type), zap.String("detail", detail))
	if sender != nil {
		p.system.Root.Send(sender, nack)
	}
	p.system.DeadLetter.SendUserMessage(p.self, msg)
}

// Drop implements route.Port: it goes to the dead letters, which tell its sender.
func (p *proxy) Drop(it route.Item) {
	p.dropped++
	msg := it.Local
	if it.Wire != nil {
		msg = wire.Local(it.Wire, it.Wire.Sender.PID(), nil)
	}
	p.system.DeadLetter.SendUserMessage(p.self, msg)
}

// shut gives up everything that is left.
func (p *proxy) shut() {
	p.over.Store(true)
	halt(p.wake)
	p.gate, p.child, p.token, p.collecting = nil, nil, 0, false
	p.Shut()
}

func (p *proxy) status() Status {
	st := p.Stats()
	s := Status{Token: p.token, Lives: p.lives, Buffered: st.Buffered + st.Kept, Dropped: p.dropped,
		Undeliverable: p.undeliverable, Relayed: st.Relayed, Unordered: st.Unordered}
	if p.known {
		s.Host = p.host.Owner
	}
	return s
}
