package sharding

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// How long a move of a shard may hold mail back for the sake of its order, and
// after how long without mail it need not.
const (
	patience = time.Second
	rest     = 5 * time.Second
)

// shard is what this node knows of one shard. Its mail passes under mu, on the
// goroutine of whoever sent it or brought it from another node; what becomes of
// the shard is the control actor's (control).
type shard struct {
	r      *Region
	number int
	name   string // of its lease

	mu      sync.RWMutex
	router  *route.Router // nil until it is needed
	entries map[string]*entry
	home    *home // where entities run; nil while none may be started
	last    *home // the same, until all its entities have ended
	direct  bool  // what comes may go straight to the entity
	waiting int   // messages that wait here, as last counted
	pending int   // of these, for an entity to start
	stats   route.Stats
	way     way
	after   []func() // to be called once mu is free
	wakes   int
	wake    lease.Timer
	wakeAt  time.Duration

	// What direct and the Router said last, for those who do not hold mu: a hint.
	here, elsewhere atomic.Bool

	served atomic.Bool   // other nodes sent mail here
	phase  atomic.Uint32 // for Info: control's

	control // belongs to the control actor
}

// home is a shard's life on this node under one term.
type home struct {
	term     lease.Term
	guardian *actor.PID // the parent of its entities
	ending   bool       // its entities were told to stop
	cause    error      // why it was lost
	states   map[string][]byte
	pack     bool // entities leave their state
	bag      map[string][]byte
	told     bool // that it is empty
	rem      remembered
}

// do runs f with the shard locked, and afterwards what must not be done then.
func (s *shard) do(f func()) {
	for _, f := range s.locked(f) {
		f()
	}
}

// locked runs f with the shard locked, which it is not any more should f panic.
func (s *shard) locked(f func()) (after []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.settle()
	after, s.after = s.after, nil
	return after
}

// settle draws the conclusions from what f did.
func (s *shard) settle() {
	var st route.Stats
	if s.router != nil {
		s.direct = s.router.Direct()
		hint(&s.here, s.direct)
		hint(&s.elsewhere, s.router.Elsewhere())
		st = s.router.Stats()
	}
	if w := st.Buffered + st.Kept + s.pending; w != s.waiting {
		s.r.waiting.Add(int64(w - s.waiting))
		s.waiting = w
	}
	if st.Relayed != s.stats.Relayed || st.Unordered != s.stats.Unordered {
		s.r.counted(s.number, st.Relayed-s.stats.Relayed, st.Unordered-s.stats.Unordered)
	}
	s.stats = st
	s.tellEmpty()
}

func hint(b *atomic.Bool, v bool) {
	if b.Load() != v {
		b.Store(v)
	}
}

// tellEmpty tells the control actor that the entities of a home that ends are gone,
// and that what they wanted forgotten is.
func (s *shard) tellEmpty() {
	h := s.last
	if h == nil || !h.ending || h.told || len(s.entries) > 0 || h.cause == nil && h.rem.unsaid() {
		return
	}
	h.told = true
	s.r.post(&homeEmpty{s.number, h})
}

// routing returns the shard's Router.
func (s *shard) routing() *route.Router {
	if s.router == nil {
		s.router = route.New(route.Config{Name: s.name, Self: s.r.self, Limit: s.r.set.buffer, Policy: s.r.set.policy,
			Patience: patience, Rest: rest}, s)
	}
	return s.router
}

// mail is a message for an entity, as it waits on this node.
type mail struct {
	id       string
	envelope any // the message, or an *actor.MessageEnvelope
}

// accept routes a message of this node.
func (s *shard) accept(m *mail) {
	r := s.routing()
	if s.r.over.Load() || s.r.full() && !r.Routable() { // over: the Router is shut, or soon
		s.Drop(route.Item{Local: m})
		return
	}
	r.Accept(m)
}

// full reports whether as much waits on this node as may.
func (r *Region) full() bool { return r.waiting.Load() >= int64(r.set.total) }

// Deliver implements route.Port.
func (s *shard) Deliver(it route.Item) {
	m, ok := it.Local.(*mail)
	if !ok {
		var err error
		if m, err = s.open(it.Wire); err != nil {
			s.Refuse(it, wire.ReasonOf(err), err.Error())
			return
		}
	}
	s.handOver(m)
}

// open reads an envelope of another node.
func (s *shard) open(e *wire.Envelope) (*mail, error) {
	if err := ValidateEntityID(e.Key); err != nil {
		return nil, err
	}
	if n := ShardOf(e.Key, s.r.typ.Shards); n != s.number { // it may run there
		return nil, fmt.Errorf("entity id %.64q: %w: it is of shard %d", e.Key, lease.ErrInvalid, n)
	}
	if e.Codec == "" {
		e.Codec = wire.CodecProto
	}
	msg, err := wire.Default.Decode(e.Type, e.Codec, e.Payload)
	if err != nil {
		return nil, err
	}
	return &mail{e.Key, wire.Local(msg, e.Sender.PID(), e.Headers)}, nil
}

// empty reports whether there is no message in what was given to be sent.
func empty(msg any) bool {
	if e, ok := msg.(*actor.MessageEnvelope); ok {
		return e == nil || e.Message == nil
	}
	return msg == nil
}

// enclose puts a message in an envelope of its own; one that is in an envelope keeps
// its headers.
func enclose(msg any, sender *actor.PID) *actor.MessageEnvelope {
	if e, ok := msg.(*actor.MessageEnvelope); ok {
		return &actor.MessageEnvelope{Header: e.Header, Message: e.Message, Sender: sender}
	}
	return &actor.MessageEnvelope{Message: msg, Sender: sender}
}

// Send implements route.Port.
func (s *shard) Send(address string, msg proto.Message) { s.r.send(address, msg) }

// Encode implements route.Port.
func (s *shard) Encode(local any) (*wire.Envelope, error) {
	m := local.(*mail)
	return s.encode(m.id, m.envelope)
}

// encode makes an envelope of a message, without token, and in the short form
// without name.
func (s *shard) encode(id string, envelope any) (*wire.Envelope, error) {
	typ, codec, payload, err := wire.Default.Encode(actor.UnwrapEnvelopeMessage(envelope), s.r.payload)
	if err != nil {
		return nil, err
	}
	if codec == wire.CodecProto {
		codec = "" // the short form, likewise
	}
	return enveloped(id, envelope, typ, codec, payload), nil
}

func enveloped(id string, envelope any, typ, codec string, payload []byte) *wire.Envelope {
	header, _, sender := actor.UnwrapEnvelope(envelope)
	e := &wire.Envelope{Type: typ, Codec: codec, Payload: payload, Key: id, Sender: wire.AddressOf(sender), Request: sender != nil}
	if header != nil && header.Length() > 0 {
		e.Headers = header.ToMap()
	}
	return e
}

// Now implements route.Port.
func (s *shard) Now() time.Duration { return s.r.clock.Now().Mono }

// Wake implements route.Port: of several the earliest counts, and Tick asks again
// for the rest.
func (s *shard) Wake(d time.Duration) {
	at := s.Now() + d
	if s.wake != nil && s.wakeAt <= at {
		return
	}
	halt(s.wake)
	s.wakes++
	n := s.wakes
	s.wakeAt = at
	s.wake = s.r.clock.AfterFunc(d, func() {
		s.do(func() {
			if n == s.wakes && s.router != nil {
				s.wake = nil
				s.router.Tick()
			}
		})
	})
}

// Soon implements route.Port: behind what the control actor has to do now.
func (s *shard) Soon() { s.r.post(&ackDue{s.number}) }

// Refuse implements route.Port: a message is given up for good, to the dead
// letters, and with word to its sender if that waits for a reply.
func (s *shard) Refuse(it route.Item, reason wire.Reason, detail string) {
	nack := &Undeliverable{Reason: reason, Name: s.name, Detail: detail}
	var sender *actor.PID
	var msg any
	if e := it.Wire; e != nil {
		nack.Type, nack.Sequence, nack.Key = e.Type, e.Sequence, e.Key
		sender, msg = e.Sender.PID(), e
	} else {
		m := it.Local.(*mail)
		_, msg, sender = actor.UnwrapEnvelope(m.envelope)
		nack.Type, nack.Key = wire.TypeName(msg), m.id
	}
	s.after = append(s.after, func() { s.r.undeliverable(nack, sender, msg) })
}

// Drop implements route.Port: it goes to the dead letters, which tell its sender.
func (s *shard) Drop(it route.Item) {
	var msg any
	if it.Wire != nil {
		msg = wire.Local(it.Wire, it.Wire.Sender.PID(), nil)
	} else {
		msg = it.Local.(*mail).envelope
	}
	s.after = append(s.after, func() { s.r.dropped(msg) })
}

// halt stops a timer that may never have been set.
func halt(t lease.Timer) {
	if t != nil {
		t.Stop()
	}
}

// contain calls a function of the user's and turns a panic into an error.
func contain(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked: %v", p)
		}
	}()
	return f()
}
