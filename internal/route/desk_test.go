package route

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// desk is one Router with a Port that only notes what it is asked for. A node that is
// full has no room, nor has one that holds as much of what was kept as a window lets it.
type desk struct {
	r         *Router
	now       time.Duration
	delivered []int
	sent      []proto.Message
	kept      []*Item
	keptAs    []proto.Message
	full      bool
	window    int // in messages; 0: no bound
	dropped   []int
	refused   map[wire.Reason][]int
	wakes     []time.Duration
	calls     int
	members   []*wire.Node
}

func newDesk(id, limit int, policy hosting.DropPolicy) *desk {
	c := configured(limit)
	c.Policy = policy
	return newDeskOf(id, c)
}

func newDeskOf(id int, c Config) *desk {
	d := &desk{refused: map[wire.Reason][]int{}, now: 1}
	c.Self = self(id)
	d.r = New(c, d)
	return d
}

func (d *desk) Deliver(it *Item) { d.calls++; d.delivered = append(d.delivered, said(it).n) }
func (d *desk) Room(string) bool {
	d.calls++
	return !d.full && (d.window == 0 || len(d.kept) < d.window)
}
func (d *desk) Send(_ string, m proto.Message) { d.calls++; d.sent = append(d.sent, proto.Clone(m)) }
func (d *desk) Keep(_ string, it *Item, m proto.Message) bool {
	d.calls++
	d.kept, d.keptAs = append(d.kept, it), append(d.keptAs, proto.Clone(m))
	return true
}
func (d *desk) Recall(string) []*Item {
	kept := d.kept
	d.kept = nil
	return kept
}
func (d *desk) Encode(m any) (*wire.Envelope, error) {
	return &wire.Envelope{Payload: payload(m.(msg))}, nil
}
func (d *desk) Drop(it *Item, _ string) { d.dropped = append(d.dropped, said(it).n) }
func (d *desk) Refuse(it *Item, why wire.Reason, _ string) {
	d.refused[why] = append(d.refused[why], said(it).n)
}
func (d *desk) Now() time.Duration       { return d.now }
func (d *desk) Members() []*wire.Node    { return d.members }
func (d *desk) Wake(after time.Duration) { d.calls++; d.wakes = append(d.wakes, after) }

// accept has it take messages of its own node.
func (d *desk) accept(from, to int) {
	for i := from; i <= to; i++ {
		d.r.Accept(Item{Local: msg{d.id(), i}, Size: 10})
	}
}

// comes has it take what another node routed by a token.
func (d *desk) comes(token uint64, n int, kept bool) {
	d.r.Receive(&wire.Envelope{Name: "x", Token: token, Payload: payload(msg{9, n})}, 10, kept)
}

func (d *desk) id() int { return int(d.r.Self.Address[1] - '0') }

// backlog makes a desk that has custody of messages 1 to n, and knows nobody to send
// them to.
func backlog(id, limit, n int) *desk {
	d := newDesk(id, limit, hosting.DropNewest)
	d.r.Open(1)
	d.r.Ending(false)
	for i := 1; i <= n; i++ {
		d.r.Back(Item{Local: msg{id, i}, Size: 10})
	}
	d.r.Closed()
	return d
}

// answer has the holder that was asked say that it is open.
func (d *desk) answer(id int, token uint64) {
	d.r.Receive(&wire.MarkerAck{Name: "x", Number: d.r.number, From: self(id), Token: token}, 0, false)
}

// keptNumbers lists the messages that were handed over.
func (d *desk) keptNumbers() (ns []int) {
	for _, m := range d.keptAs {
		if e, ok := m.(*wire.Envelope); ok {
			ns = append(ns, said(&Item{Wire: e}).n)
		}
	}
	d.keptAs = nil
	return ns
}

func numbers[T int | uint64](from, to T) (all []T) {
	for i := from; i <= to; i++ {
		all = append(all, i)
	}
	return all
}
