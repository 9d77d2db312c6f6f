package sharding

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/asker"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/fastpath"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// cell is one shard as all parts of it see it, and their lock. Mail passes under mu, on the
// goroutine of the sender, or of the link that brought it from another node; what becomes of the
// shard is the control loop's (hold). What works with mu held ends in Locked; what a Router calls
// (route.Port) has it held, too.
type cell struct {
	*node
	number int
	name   string // of its lease
	whole  whole

	mu    sync.RWMutex
	after []func() // to be called once mu is free
}

// whole is the shard that a cell is of.
type whole interface {
	route.Port
	transport.Owner
	// concludeLocked draws the conclusions from what was done, and returns the links to flush.
	concludeLocked() []*transport.Peer
}

// do runs f with the shard locked, and afterwards what must not be done then: what it
// queued is sent, and what it had to tell.
func (s *cell) do(f func()) {
	after, touched := s.locked(f)
	for _, p := range touched {
		p.Flush()
	}
	for _, f := range after {
		_ = boundary.Contained(f) // metrics are the user's, too
	}
}

// locked runs f with the shard locked, which it is not any more should f panic.
func (s *cell) locked(f func()) (after []func(), touched []*transport.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	touched = s.whole.concludeLocked()
	after, s.after = s.after, nil
	return after, touched
}

// mailroom is how a shard's mail finds its way: to entities here, to other nodes, or to where it
// waits.
type mailroom struct {
	cell
	router *route.Router // nil until it is needed
	out    transport.Outbox
	direct bool // what comes may go straight to the entity
	waits  int  // messages that wait here, as last counted
	stats  route.Stats
	path   fastpath.Path
	asked  asker.InFlight
	wake   actors.Alarm

	broke   string        // the address of the last host that the link to broke
	brokeAt time.Duration // by Now

	// What direct and the Router said last, for those who do not hold mu: a hint.
	here, elsewhere atomic.Bool
	served          atomic.Bool // other nodes sent mail here
}

// mail is a message for an entity, as it waits on this node.
type mail struct {
	id       string
	envelope any // the message, or an *actor.MessageEnvelope
}

// routing returns the shard's Router.
func (s *mailroom) routing() *route.Router {
	if s.router == nil {
		config := s.set.mail
		config.Name, config.Self, config.TTL = s.name, s.self, s.leaseTTL()
		s.router = route.New(config, s.whole)
		s.out.Init(transport.Of(s.system), s.whole, s.names.Process, s.payload+wire.Headroom, &s.counts.unconfirmed)
	}
	return s.router
}

// item is m as it waits for its way.
func (s *mailroom) item(m *mail) route.Item {
	it := route.Item{Local: m, Size: actors.Footprint(m.envelope) + len(m.id)}
	if left, ok := wire.PatienceOf(s.system, actor.UnwrapEnvelopeSender(m.envelope)); ok {
		it.Until = route.Until(s.Now(), left)
	}
	return it
}

// accept routes a message that this node sends.
func (s *mailroom) accept(m *mail) {
	r, it := s.routing(), s.item(m)
	switch {
	case s.over.Load(): // the Router is shut, or soon
		s.Drop(&it, "the region has ended")
	case s.full() && !r.Routable():
		s.Drop(&it, "as much waits on this node as may")
	default:
		r.Accept(it)
	}
}

// forwardFast sends a message to the node that is known to host the shard, if nothing
// holds it up.
func (s *mailroom) forwardFast(id string, envelope any) bool {
	// Outside of the lock: others may encode meanwhile.
	var m fastpath.Mail
	if !m.Encode(id, envelope, s.payload, s.encode) {
		return false // Accept refuses it
	}
	if !s.straight(&m) {
		return false
	}
	m.Flush()
	return true
}

// straight queues a message for the node that hosts the shard; false if something holds
// it up.
func (s *mailroom) straight(m *fastpath.Mail) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	node, token, ok := s.router.Through()
	if !ok {
		return false
	}
	ok = s.short.Send(&s.path, &s.out, &s.asked, m, "", node, token)
	if ok {
		s.router.Went()
	}
	return ok
}

// unpack reads an envelope of another node.
func (s *mailroom) unpack(e *wire.Envelope) (*mail, error) {
	if err := ValidateEntityID(e.Key); err != nil {
		return nil, err
	}
	if n := ShardOf(e.Key, s.typ.Shards); n != s.number { // it may run there
		return nil, fmt.Errorf("entity id %.64q: %w: it is of shard %d", e.Key, lease.ErrInvalid, n)
	}
	if e.Codec == "" {
		e.Codec = wire.CodecProto
	}
	msg, err := wire.Default.Open(e)
	if err != nil {
		return nil, err
	}
	if wire.OfSystem(msg) {
		return nil, fmt.Errorf("message to %.64q: %w: %T, which only an actor system sends", e.Key, lease.ErrInvalid, msg)
	}
	return &mail{e.Key, wire.Local(msg, e.Sender.PID(), e.Headers)}, nil
}

// Room implements route.Port.
func (s *mailroom) Room(address string) bool {
	return address == s.self.Address || s.out.Room(address)
}

// Members implements route.Port.
func (s *mailroom) Members() []*wire.Node {
	others, _ := s.others.Load().([]*wire.Node)
	return others
}

// Send implements route.Port.
func (s *mailroom) Send(address string, msg proto.Message) {
	if address == s.self.Address || address == "" { // without remote there is none
		s.after = append(s.after, func() { s.post(msg) })
		return
	}
	link := s.out.Send(address, msg)
	if e, ok := msg.(*wire.Envelope); ok {
		s.asked.Went(s.system, e.Sender, address, link)
	}
}

// cutOff: the link to address broke. Asks that went over it get no answer any more, unless they
// have been forwarded.
func (s *mailroom) cutOff(address string) {
	s.do(func() {
		if s.router == nil {
			return
		}
		if s.router.Holder().GetAddress() == address {
			s.broke, s.brokeAt = address, s.Now()
		}
		s.asked.Broke(s.clock, address, s.out.Link(address), s.router.MovedFrom(address))
		s.router.Gone(address)
	})
}

// Keep implements route.Port.
func (s *mailroom) Keep(address string, it *route.Item, msg proto.Message) bool {
	return s.out.Keep(address, it, msg)
}

// Recall implements route.Port.
func (s *mailroom) Recall(address string) []*route.Item { return route.ItemsOf(s.out.Recall(address)) }

// Linked implements transport.Owner.
func (s *mailroom) Linked(address string) {
	s.do(func() {
		if !s.over.Load() {
			s.routing().Linked(address)
		}
	})
}

// Returned implements transport.Owner. Mail that the Router does not take back goes to the dead
// letters.
func (s *mailroom) Returned(address string, kept []any) {
	s.do(func() {
		items := route.ItemsOf(kept)
		if !s.over.Load() {
			s.routing().Returned(items)
			return
		}
		for _, it := range items {
			if it.Mail() {
				s.Drop(it, "the next host was not reached")
			}
		}
	})
}

// Held implements transport.Owner.
func (s *mailroom) Held() *atomic.Int64 { return s.out.Held() }

// sendable reports whether msg may be sent to an entity: it is not nil, and no message that only
// an actor system sends.
func sendable(msg any) bool {
	if e, ok := msg.(*actor.MessageEnvelope); ok {
		return e != nil && e.Message != nil && !wire.OfSystem(e.Message)
	}
	return msg != nil && !wire.OfSystem(msg)
}

// Encode implements route.Port.
func (s *mailroom) Encode(local any) (*wire.Envelope, error) {
	m := local.(*mail)
	return s.encode(m.id, m.envelope)
}

// encode makes an envelope of a message, without token, and in the short form
// without name.
func (s *mailroom) encode(id string, envelope any) (*wire.Envelope, error) {
	e, err := wire.Default.Envelop(envelope, s.payload)
	if err != nil {
		return nil, err
	}
	e.Key = id
	if e.Codec == wire.CodecProto {
		e.Codec = "" // the short form, too
	}
	return e, nil
}

// Now implements route.Port.
func (s *mailroom) Now() time.Duration { return s.elapsed() }

// Wake implements route.Port: of several the earliest counts, and Tick asks again
// for the rest.
func (s *mailroom) Wake(d time.Duration) {
	now := s.Now()
	s.wake.SetBy(s.clock, s.do, now, now+d, s.router.Tick)
}

// Refuse implements route.Port: it gives a message up for good, to the dead letters, and tells a
// sender that waits for a reply.
func (s *mailroom) Refuse(it *route.Item, reason wire.Reason, detail string) {
	nack, sender, msg := s.nack(it, reason, detail)
	if reason == wire.Reason_REASON_EXPIRED {
		sender = nil // it is about to hear from its context, which is to say so
	}
	s.after = append(s.after, func() { s.undeliverable(nack, sender, msg) })
}

// Drop implements route.Port: the message goes to the dead letters, and its sender hears of it.
func (s *mailroom) Drop(it *route.Item, why string) { s.Refuse(it, wire.Reason_REASON_OVERFLOW, why) }

// nack tells a sender that its message was not delivered.
func (s *mailroom) nack(it *route.Item, reason wire.Reason, detail string) (nack *wire.Nack, sender *actor.PID, msg any) {
	nack = &wire.Nack{Reason: reason, Name: s.name, Detail: wire.Text(detail)}
	if e := it.Wire; e != nil {
		nack.Type, nack.Sequence, nack.Key = e.Type, e.Sequence, e.Key
		return nack, e.Sender.PID(), e
	}
	m := it.Local.(*mail)
	_, msg, sender = actor.UnwrapEnvelope(m.envelope)
	nack.Type, nack.Key = wire.TypeName(msg), m.id
	return nack, sender, msg
}

// touched notes that other nodes send mail here.
func (s *mailroom) touched() {
	if !s.served.Load() {
		s.served.Store(true)
	}
}

// custodyTotal is how many times the bound in all may wait with what was handed to this
// node: it had been accepted where it was.
const custodyTotal = 4

// receive has the Router take an envelope. Of what waits for tokens yet to come, which
// may be made up, a node holds half of what it may hold, so that there is room for the
// rest.
func (s *mailroom) receive(m *wire.Envelope, kept bool) {
	s.do(func() {
		r, waits := s.routing(), s.counts.waiting.Load()
		switch it := (&route.Item{Wire: m}); {
		case s.over.Load():
			s.Drop(it, "the region has ended")
		case !kept && 2*waits >= int64(s.set.total) && r.Ahead(lease.Token(m.Token)),
			s.full() && !r.Routable() && (!kept || waits >= custodyTotal*int64(s.set.total)):
			s.Drop(it, "as much waits on this node as may")
		default:
			r.Receive(m, m.Footprint(), kept)
		}
	})
}
