package route

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/mutant"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// outbox is what was relayed to one incarnation and not acknowledged yet. It is
// sent again from its beginning until it is (go back n).
type outbox struct {
	to     string // the incarnation
	addr   string
	stream uint64
	next   uint64
	items  []kept
	again  time.Duration // when to send it again
}

type kept struct {
	sequence uint64
	item     Item
	relay    *wire.Relay
}

func (o *outbox) full(limit int) bool { return len(o.items) >= limit }

// take empties the outbox.
func (o *outbox) take() []Item {
	items := make([]Item, 0, len(o.items))
	for _, k := range o.items {
		items = append(items, k.item)
	}
	o.items, o.to = nil, "" // the next relay begins a new stream
	return items
}

// repeatAfter is the pause before what is not acknowledged is sent again.
const repeatAfter = 500 * time.Millisecond

// relay sends it numbered and keeps it.
func (r *Router) relay(t hop, it Item, msg proto.Message) {
	o := &r.out
	if o.to != t.node.Incarnation {
		o.to, o.addr, o.stream, o.next = t.node.Incarnation, t.node.Address, o.stream+1, 1
	}
	m := &wire.Relay{Name: r.Name, From: r.Self, To: o.to, Stream: o.stream, Sequence: o.next}
	switch w := msg.(type) {
	case *wire.Envelope:
		m.What = &wire.Relay_Envelope{Envelope: w}
	case *wire.Marker:
		m.What = &wire.Relay_Marker{Marker: w}
	}
	o.next++
	if len(o.items) == 0 {
		o.again = r.port.Now() + repeatAfter
		r.port.Wake(repeatAfter)
	}
	if !mutant.On(mutant.RelayForgotten) {
		o.items = append(o.items, kept{m.Sequence, it, m})
	}
	r.stats.Relayed++
	r.port.Send(o.addr, m)
}

// acknowledged drops what was taken up.
func (r *Router) acknowledged(m *wire.RelayAck) {
	o := &r.out
	if m.Stream != o.stream || m.From.GetIncarnation() != o.to {
		return
	}
	if m.Sequence == 0 && len(o.items) > 0 && o.items[0].sequence > 1 {
		r.renumber() // it knew more once: another Router has taken its place
		return
	}
	n := 0
	for n < len(o.items) && o.items[n].sequence <= m.Sequence {
		n++
	}
	o.items = o.items[n:]
	switch {
	case len(o.items) == 0:
		o.items = nil
	case m.Again:
		r.resend()
	case n > 0:
		o.again = r.port.Now() + repeatAfter
	}
	if n > 0 {
		r.flush()
	}
}

// repeat sends what was not acknowledged in time again.
func (r *Router) repeat(now time.Duration) {
	if len(r.out.items) == 0 {
		return
	}
	if now >= r.out.again {
		r.resend()
	}
	r.port.Wake(max(r.out.again-now, time.Millisecond))
}

// renumber sends what is kept as a stream that begins with it.
func (r *Router) renumber() {
	o := &r.out
	o.stream, o.next = o.stream+1, 1
	for i, k := range o.items {
		m := proto.CloneOf(k.relay)
		m.Stream, m.Sequence = o.stream, o.next
		o.items[i] = kept{o.next, k.item, m}
		o.next++
	}
	r.resend()
}

func (r *Router) resend() {
	r.out.again = r.port.Now() + repeatAfter
	if r.doubt && r.out.addr == r.host.node.GetAddress() {
		return // the probe finds out first
	}
	for _, k := range r.out.items {
		r.port.Send(r.out.addr, k.relay)
	}
}

// inbox is the stream of relays of one incarnation.
type inbox struct {
	node    *wire.Node
	stream  uint64
	last    uint64
	refused bool // there was no room for the next
	used    time.Duration
}

// maxInboxes bounds how many incarnations' streams are remembered.
const maxInboxes = 64

func (r *Router) inbox(m *wire.Relay) *inbox {
	from := m.From.GetIncarnation()
	in := r.in[from]
	if in == nil {
		if len(r.in) >= maxInboxes {
			oldest := ""
			for inc, x := range r.in {
				if oldest == "" || x.used < r.in[oldest].used {
					oldest = inc
				}
			}
			delete(r.in, oldest)
		}
		in = &inbox{}
		r.in[from] = in
	}
	if m.Stream > in.stream {
		in.stream, in.last, in.refused = m.Stream, 0, false
	}
	in.node, in.used = m.From, r.port.Now()
	return in
}

// relayed takes up the next of a stream; what came before its turn, comes again,
// or finds no room is not.
func (r *Router) relayed(m *wire.Relay) {
	if m.To != r.Self.Incarnation || m.From == nil || m.Name != r.Name {
		return // for another life of this address
	}
	in := r.inbox(m)
	if m.Stream < in.stream {
		return
	}
	r.ackSoon(m.From.Incarnation)
	if m.Sequence != in.last+1 {
		return
	}
	it := Item{Wire: m.GetEnvelope(), marker: m.GetMarker(), kept: true}
	switch {
	case it.Wire == nil && it.marker == nil: // of a newer version: skipped
	default:
		if q := r.route(it); q != nil {
			if q.full() && it.marker == nil {
				in.refused = true // its sender keeps it
				return
			}
			q.push(it)
		}
	}
	in.last = m.Sequence
}

func (r *Router) ackSoon(incarnation string) {
	if len(r.acks) == 0 {
		r.port.Soon()
	}
	r.acks[incarnation] = true
}

// Acknowledge tells those who relayed how far it was taken up.
func (r *Router) Acknowledge() {
	for inc := range r.acks {
		delete(r.acks, inc)
		if in := r.in[inc]; in != nil {
			r.port.Send(in.node.Address, &wire.RelayAck{Name: r.Name, From: r.Self, Stream: in.stream, Sequence: in.last})
		}
	}
}

// roomAgain asks for what was refused, once there is room.
func (r *Router) roomAgain() {
	if r.buffer.full() || r.ending {
		return
	}
	for _, in := range r.in {
		if in.refused {
			in.refused = false
			r.port.Send(in.node.Address, &wire.RelayAck{Name: r.Name, From: r.Self, Stream: in.stream, Sequence: in.last, Again: true})
		}
	}
}
