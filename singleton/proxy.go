package singleton

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// patience is how long a move of the singleton may hold mail back for the sake of its
// order, without a sign of progress.
const patience = time.Second

// maxBuffered bounds what waits for a host, in bytes.
const maxBuffered = 64 << 20

// maxCustody bounds what waits here that other nodes handed over, in bytes.
const maxCustody = 64 << 20

// proxy is the world around the Router of the singleton's mail: the child's gate,
// other nodes' managers, the dead letters. It belongs to the controller's
// goroutine.
type proxy struct {
	*Manager
	*route.Router
	c    *controller
	out  transport.Outbox
	door door
	over atomic.Bool // the actor has ended

	payload int         // bound of a message between nodes
	served  atomic.Bool // other nodes' mail passed the door

	began time.Duration // for Now

	gate       *gate.Gate
	child      *actor.PID
	token      lease.Token // of the gate's term
	lives      int
	collecting bool // the child is done; its mail is coming back

	host    lease.Record // the holder of the lease, if known
	known   bool
	learned time.Duration // when it became the holder, as far as this node knew
	heard   int           // how often this node heard of it
	judged  judgement     // of what the host says of itself
	told    logged

	warned        boundary.Line // of undeliverable messages
	dropped       atomic.Int64
	undeliverable int

	wake    actors.Alarm
	looking bool // a look-up of the holder is under way, or what it found is of use yet
}

func (p *proxy) init(c *controller) {
	m := c.Manager
	p.c, p.Manager, p.began = c, m, m.clock.Now().Mono-1
	self := &wire.Node{Address: m.system.Address(), Incarnation: m.system.ID}
	if m.keeper != nil {
		self.Incarnation = m.keeper.Owner().Incarnation
	}
	p.Router = route.New(route.Config{Name: m.lname, Self: self, Limit: m.set.buffer, Bytes: maxBuffered, Custody: maxCustody,
		Policy: m.set.drop, Patience: patience, TTL: defaultTTL}, p)
	p.payload = wire.PayloadLimit(m.system)
	p.out.Init(transport.Of(m.system), p, m.pid.Id, p.payload+wire.Headroom, &p.lost)
	p.door.init(p)
}

// post sends to the actor from anywhere, until it has ended.
func (p *proxy) post(msg any) {
	if !p.over.Load() {
		p.tell(msg)
	}
}

// divert sends the actor what a gate refused. If it has ended, as one that is stopped by
// force may before the mailbox of its child is empty, that is a dead letter.
func (p *proxy) divert(g *gate.Gate, envelope any) {
	msg := &diverted{g, envelope}
	if actor, ok := p.system.ProcessRegistry.GetLocal(p.pid.Id); ok {
		actor.SendUserMessage(p.pid, &told{msg})
	} else if mail := mailIn(msg); mail != nil {
		bury(p.system, p.pid, mail)
	}
}

// collect begins to take the backlog of a child that is done.
func (p *proxy) collect(g *gate.Gate) {
	if g == p.gate && !p.collecting {
		p.collecting = true
		p.Ending(false)
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
	p.Accept(route.Item{Local: envelope, Size: actors.Footprint(envelope), Until: p.until(envelope)})
	p.lookUp()
}

// setHost takes up the holder of the lease.
func (p *proxy) setHost(r lease.Record, known bool) {
	if known && !(p.known && p.host.Owner.Incarnation == r.Owner.Incarnation && p.host.Token >= p.Own()) {
		p.learned = p.clock.Now().Mono
		if p.dir != nil && r.TTL > 0 && r.Owner.ID != "" && r.Owner.ID == p.c.ownID() && r.Owner.Incarnation != p.Self.Incarnation {
			p.suspect(r.Owner.Incarnation, r.TTL)
		}
	}
	p.host, p.known = r, known
	p.heard++
	p.judge(r, known)
	node := wire.NodeOf(r.Owner)
	p.Host(node, r.Token, known && p.judged.refused == nil)
	if known {
		transport.Of(p.system).Expect(node)
	}
}

// suspect looks whether a host with this node's ID lives on: what is left of a former life of this node
// ends with its TTL.
func (p *proxy) suspect(incarnation string, ttl time.Duration) {
	p.clock.AfterFunc(ttl+ttl/2, func() {
		p.c.post(func() {
			if at := p.host.Owner; p.known && at.Incarnation == incarnation {
				p.log.Error("another node has this node's ID (lease.Config.ID)", zap.String("id", at.ID), zap.String("address", at.Address))
			}
		})
	})
}

// Receive takes a message of another node's manager; kept says that this node has
// custody of it now. false if it is no such message.
func (p *proxy) Receive(msg any, kept bool) bool {
	size := 0
	switch m := msg.(type) {
	case *wire.Envelope:
		size = m.Footprint()
		p.asked.Came(p.system, m.Sender)
	case *wire.MarkerAck:
		if p.refuses(m.From) {
			return true // it says that it hosts; what waits for the answer gives up
		}
	}
	if !p.Router.Receive(msg, size, kept) {
		return false
	}
	p.lookUp() // it may wait here for the next host
	return true
}

// Served reports whether other nodes sent mail here.
func (p *proxy) Served() bool { return p.served.Load() || p.Router.Served() }

// until is when the caller gives up, if that is known here.
func (p *proxy) until(envelope any) time.Duration {
	left, ok := wire.PatienceOf(p.system, actor.UnwrapEnvelopeSender(envelope))
	if !ok {
		return 0
	}
	return route.Until(p.Now(), left)
}

// Deliver implements route.Port.
func (p *proxy) Deliver(it *route.Item) {
	envelopeHere := it.Local
	if e := it.Wire; e != nil {
		msg, err := wire.Default.Open(e)
		if err != nil {
			p.Refuse(it, wire.ReasonOf(err), wire.Why(err, p.system.Address()))
			return
		}
		if ofLife(msg) {
			p.Refuse(it, wire.Reason_REASON_UNSPECIFIED, fmt.Sprintf("%T, which no other node may send", msg))
			return
		}
		envelopeHere = wire.Local(msg, e.Sender.PID(), e.Headers)
	}
	p.gate.Post(envelopeHere)
}

// Room implements route.Port.
func (p *proxy) Room(address string) bool {
	return address == p.system.Address() || p.out.Room(address)
}

// Send implements route.Port.
func (p *proxy) Send(address string, msg proto.Message) {
	switch address {
	case p.system.Address():
		p.tell(msg) // an answer to ourselves
	case "": // an answer to a peer that does not say where it is
	default:
		link := p.out.Send(address, msg)
		if e, ok := msg.(*wire.Envelope); ok {
			p.asked.Went(p.system, e.Sender, address, link)
		}
	}
}

// Keep implements route.Port.
func (p *proxy) Keep(address string, it *route.Item, msg proto.Message) bool {
	return p.out.Keep(address, it, msg)
}

// Recall implements route.Port.
func (p *proxy) Recall(address string) []*route.Item { return route.ItemsOf(p.out.Recall(address)) }

// flush sends what was queued for other nodes.
func (p *proxy) flush() {
	for _, peer := range p.out.Touched() {
		peer.Flush()
	}
}

// The following implement transport.Owner.

// Linked implements transport.Owner.
func (p *proxy) Linked(address string) { p.c.post(func() { p.Router.Linked(address) }) }

// Returned implements transport.Owner. What is not taken up again goes to the dead
// letters.
func (p *proxy) Returned(address string, kept []any) {
	if !p.over.Load() {
		p.post(&cameBack{kept})
		return
	}
	for _, it := range route.ItemsOf(kept) {
		if it.Mail() {
			p.deadLetter(it)
		}
	}
}

// Held implements transport.Owner.
func (p *proxy) Held() *atomic.Int64 { return p.out.Held() }

// Encode implements route.Port.
func (p *proxy) Encode(local any) (*wire.Envelope, error) {
	return wire.Default.Envelop(local, p.payload)
}

// Now implements route.Port. It is above 0, which stands for never, though the clock may
// begin anywhere: for programs under testing/synctest it is below.
func (p *proxy) Now() time.Duration { return p.clock.Now().Mono - p.began }

// Wake implements route.Port: of several the earliest counts, and Tick asks
// again for the rest.
func (p *proxy) Wake(d time.Duration) {
	now := p.Now()
	p.wake.SetBy(p.clock, p.c.post, now, now+d, p.Tick)
}

// Members implements route.Port.
func (p *proxy) Members() []*wire.Node { return transport.Of(p.system).Members() }

// lookUpEvery is the pause between looks for the holder where records can't be
// followed; while no other host is found, it is a quarter of that.
const lookUpEvery = time.Second

// lookUp asks for the holder of the lease, where records can't be followed, for as long as
// mail waits, or a marker. The answer is used for that, then forgotten.
func (p *proxy) lookUp() {
	if p.dir != nil || p.looking || p.gate != nil || !p.Waits() {
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
		var rec lease.Record
		var known bool
		err := boundary.Call(func() (err error) { rec, known, err = f.Holder(ctx); return err })
		if err != nil {
			p.log.Debug("the host is not known", zap.Error(err))
		}
		p.c.post(func() {
			p.c.storeSaid(err)
			p.found(rec, known && err == nil)
			p.c.introduce(false)
		})
	})
}

func (p *proxy) found(record lease.Record, known bool) {
	here := known && record.Owner.Address == p.system.Address()
	p.setHost(record, known && !here) // nothing is sent from here to here
	pause := lookUpEvery
	if !known || here { // another is about to be
		pause = lookUpEvery / 4
	}
	p.clock.AfterFunc(pause, func() { p.c.post(p.stale) })
}

func (p *proxy) stale() {
	p.looking = false
	p.setHost(lease.Record{}, false)
	p.lookUp()
}

// Refuse implements route.Port: a message is given up for good, to the dead
// letters, and with word to its sender if that waits for a reply.
func (p *proxy) Refuse(it *route.Item, reason wire.Reason, detail string) {
	p.undeliverable++
	if missed, ok := p.warned.Open(p.Now()); ok {
		p.log.Warn("undeliverable message", zap.Stringer("reason", hosting.Reason(reason)), zap.String("detail", detail), zap.Int("missed", missed))
	}
	p.answer(it, reason, detail)
}

// Drop implements route.Port: it goes to the dead letters, with word to its sender. The door calls
// it, too, from anywhere.
func (p *proxy) Drop(it *route.Item, why string) {
	p.dropped.Add(1)
	p.answer(it, wire.Reason_REASON_OVERFLOW, why)
}

// answer tells the sender of a message that it was not delivered, and makes a dead letter
// of it; that without the sender, who would be answered twice.
func (p *proxy) answer(it *route.Item, reason wire.Reason, detail string) {
	nack := &wire.Nack{Reason: reason, Name: p.lname, Detail: wire.Text(detail)}
	_, msg, sender := actor.UnwrapEnvelope(it.Local)
	if e := it.Wire; e != nil {
		nack.Type, nack.Sequence, nack.Key = e.Type, e.Sequence, e.Key
		sender, msg = e.Sender.PID(), e
	} else {
		nack.Type = wire.TypeName(msg)
	}
	if sender != nil && reason != wire.Reason_REASON_EXPIRED { // that is about to hear from its context
		outlet.Tell(p.system, sender, nack)
	}
	p.outlet.DeadLetter(p.pid, msg)
}

// deadLetter is for what is left when the actor has ended.
func (p *proxy) deadLetter(it *route.Item) {
	msg := it.Local
	if it.Wire != nil {
		msg = wire.Local(it.Wire, it.Wire.Sender.PID(), nil)
	}
	if msg != nil {
		p.outlet.DeadLetter(p.pid, msg)
	}
}

// shut gives up everything that is left.
func (p *proxy) shut() {
	p.over.Store(true)
	p.wake.Stop()
	p.gate, p.child, p.token, p.collecting = nil, nil, 0, false
	p.Shut()
	for _, w := range p.door.take() {
		p.door.afterEnd(w.message)
	}
	p.flush()
	p.out.Leave()
}

func (p *proxy) status() Status {
	st := p.Stats()
	s := Status{Token: p.token, Lives: p.lives, Buffered: st.Buffered + int(p.Held().Load()), Dropped: int(p.dropped.Load()),
		Undeliverable: p.undeliverable, Unconfirmed: int(p.lost.Load()), Relayed: st.Relayed, Unordered: st.Unordered}
	if p.known {
		s.Host, s.Differs, s.Refused = p.host.Owner, p.judged.differs, p.judged.refused
	}
	return s
}
