package singleton

import (
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
	*core
	*route.Router
	host *host
	out  transport.Outbox

	payload int         // bound of a message between nodes
	served  atomic.Bool // other nodes' mail passed the door

	began time.Duration // for Now

	gate       *gate.Gate
	child      *actor.PID
	token      lease.Token // of the gate's term
	lives      int
	collecting bool // the child is done; its mail is coming back

	warned        boundary.Line // of undeliverable messages
	dropped       atomic.Int64
	undeliverable int

	wake actors.Alarm
}

func newProxy(c *core, h *host) *proxy {
	p := &proxy{core: c, host: h, began: c.now() - 1, payload: wire.PayloadLimit(c.system)}
	self := &wire.Node{Address: c.system.Address(), Incarnation: c.keeper.Owner().Incarnation}
	p.Router = route.New(route.Config{Name: c.lname, Self: self, Limit: c.set.buffer, Bytes: maxBuffered, Custody: maxCustody,
		Policy: c.set.drop, Patience: patience, TTL: defaultTTL}, p)
	h.Router = p.Router
	p.out.Init(transport.Of(c.system), p, c.pid.Id, p.payload+wire.Headroom, &p.lost)
	return p
}

// What comes back to the manager's actor from a gate, or from another node.
type (
	// diverted is mail that a gate refused.
	diverted struct {
		gate     *gate.Gate
		envelope any
	}
	// cameBack is mail that was kept for another node, which did not take it.
	cameBack struct{ kept []any }
)

// close forgets the gate, whose backlog is complete.
func (p *proxy) close() {
	p.gate, p.child, p.token, p.collecting = nil, nil, 0, false
	p.Closed()
}

// outbound routes mail from this node.
func (p *proxy) outbound(envelope any) {
	p.Accept(route.Item{Local: envelope, Size: actors.Footprint(envelope), Until: p.until(envelope)})
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
		if p.host.refuses(m.From) {
			return true // it says that it hosts; what waits for the answer gives up
		}
	}
	return p.Router.Receive(msg, size, kept)
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

// ofLife reports whether msg is one by which an actor learns of its own life, or of another's,
// or is ended: no other node is to say that to the child.
func ofLife(msg any) bool {
	_, auto := msg.(actor.AutoReceiveMessage)
	return auto || wire.OfSystem(msg)
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
func (p *proxy) Linked(address string) { p.post(func() { p.Router.Linked(address) }) }

// Returned implements transport.Owner.
func (p *proxy) Returned(address string, kept []any) {
	if !p.over.Load() {
		p.send(&cameBack{kept})
		return
	}
	for _, it := range route.ItemsOf(kept) {
		if it.Mail() {
			p.Drop(it, "the next host was not reached")
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
	p.wake.SetBy(p.clock, p.post, now, now+d, p.Tick)
}

// Members implements route.Port.
func (p *proxy) Members() []*wire.Node { return transport.Of(p.system).Members() }

// Refuse implements route.Port: a message is given up for good, to the dead
// letters, and with word to its sender if that waits for a reply.
func (p *proxy) Refuse(it *route.Item, reason wire.Reason, detail string) {
	p.undeliverable++
	p.warned.Warn(p.log, p.Now(), "undeliverable message", zap.Stringer("reason", hosting.Reason(reason)), zap.String("detail", detail))
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
	p.outlet.Undeliverable(int32(reason), p.pid, msg)
}

// shut gives up everything that is left.
func (p *proxy) shut() {
	p.over.Store(true)
	p.wake.Stop()
	p.gate, p.child, p.token, p.collecting = nil, nil, 0, false
	p.Shut()
	p.flush()
	p.out.Leave()
}

func (p *proxy) status() Status {
	st := p.Stats()
	s := Status{Token: p.token, Lives: p.lives, Buffered: st.Buffered + int(p.Held().Load()), Dropped: int(p.dropped.Load()),
		Undeliverable: p.undeliverable, Unconfirmed: int(p.lost.Load()), Relayed: st.Relayed, Unordered: st.Unordered}
	if h := p.host; h.known {
		s.Host, s.Differs, s.Refused = h.record.Owner, h.judged.differs, h.judged.refused
	}
	return s
}
