package route

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// xport is a Router's Port in one state.
type xport struct {
	w  *xworld
	id int
}

func (p *xport) Deliver(it *Item) {
	p.w.box[p.id] = append(slices.Clip(p.w.box[p.id]), said(it))
}

func (p *xport) link(address string) *xlink { return &p.w.links[p.id][int(address[1]-'0')] }

func (w *xworld) room(l *xlink) bool {
	mail := 0
	for _, m := range l.msgs {
		if _, ok := m.msg.(*wire.Envelope); ok || m.number > 0 {
			mail++
		}
	}
	return !l.down && (w.model.window == 0 || mail < w.model.window)
}

func (p *xport) Room(address string) bool {
	l := p.link(address)
	if p.w.room(l) {
		return true
	}
	l.waits = true
	return false
}

func (p *xport) Send(address string, m proto.Message) {
	l := p.link(address)
	if l.down {
		return // it is about a path switch that broke with the link
	}
	l.msgs = append(slices.Clip(l.msgs), xmail{msg: m})
}

func (p *xport) Keep(address string, it *Item, m proto.Message) bool {
	l := p.link(address)
	l.number++
	l.frames = append(slices.Clip(l.frames), xframe{l.number, it, m})
	if !l.down {
		l.msgs = append(slices.Clip(l.msgs), xmail{msg: m, number: l.number})
	}
	return true
}

func (p *xport) Recall(address string) (items []*Item) {
	l := p.link(address)
	if !l.down {
		return nil
	}
	for _, f := range l.frames {
		c := *f.item
		items = append(items, &c)
		p.w.doubles = p.w.doubles || f.number <= l.taken
	}
	l.frames = nil
	return items
}

func (p *xport) Encode(m any) (*wire.Envelope, error) { return (&port{}).Encode(m) }
func (p *xport) Drop(it *Item, _ string)              { m := said(it); p.w.dropped[m.sender][m.n-1]++ }
func (p *xport) Refuse(it *Item, _ wire.Reason, _ string) {
	p.Drop(it, "")
}
func (p *xport) Now() time.Duration    { return p.w.now }
func (p *xport) Members() []*wire.Node { return nil }

func (p *xport) Wake(time.Duration) { p.w.wakes[p.id] = true }

// breakLink loses what is under way between two nodes and tells both.
func (w *xworld) breakLink(x, y int) {
	for _, l := range [][2]int{{x, y}, {y, x}} {
		o := &w.links[l[0]][l[1]]
		for _, m := range o.msgs {
			if e, ok := m.msg.(*wire.Envelope); ok && m.number == 0 {
				m := said(&Item{Wire: e})
				w.broken[m.sender][m.n-1] = true
			}
		}
		o.msgs, o.down = nil, true
		if w.model.plant == "custody is forgotten" {
			o.frames = nil
		}
	}
	w.router(x).Gone(self(y).Address)
	w.router(y).Gone(self(x).Address)
}

// mend makes the link anew: what was not taken goes on.
func (w *xworld) mend(x, y int) {
	for _, l := range [][2]int{{x, y}, {y, x}} {
		o := &w.links[l[0]][l[1]]
		o.down = false
		if w.model.plant != "a frame is taken twice" {
			w.taken(l[0], l[1], o.taken)
		}
		for _, f := range o.frames {
			o.msgs = append(slices.Clip(o.msgs), xmail{msg: f.msg, number: f.number})
		}
	}
	for _, l := range [][2]int{{x, y}, {y, x}} {
		w.links[l[0]][l[1]].waits = false
		w.router(l[0]).Linked(self(l[1]).Address)
	}
}

// taken has a sender hear what was taken.
func (w *xworld) taken(from, to, number int) {
	o := &w.links[from][to]
	for len(o.frames) > 0 && o.frames[0].number <= number {
		o.frames = o.frames[1:]
	}
	if len(o.frames) == 0 {
		o.frames = nil
	}
}

// receive hands the next message on a link over.
func (w *xworld) receive(from, to int) {
	o := &w.links[from][to]
	m := o.msgs[0]
	o.msgs = o.msgs[1:]
	if len(o.msgs) == 0 {
		o.msgs = nil
	}
	if m.heard > 0 {
		w.taken(to, from, m.heard)
		return
	}
	if m.number > 0 {
		o.taken = m.number
		if w.model.breaks == 0 {
			w.taken(from, to, m.number)
		} else {
			back := &w.links[to][from]
			back.msgs = append(slices.Clip(back.msgs), xmail{heard: m.number})
		}
	}
	w.handOver(to, m)
	if o := &w.links[from][to]; o.waits && w.room(o) {
		o.waits = false
		w.router(from).Linked(self(to).Address)
	}
}

func (w *xworld) handOver(to int, m xmail) {
	switch m := m.msg.(type) {
	case *wire.Marker:
		if w.model.plant == "a marker is answered by any node that gets it" && int(m.From.Address[1]-'0') != to {
			back := &wire.MarkerAck{Name: "x", Number: m.Number, From: self(w.owner), Token: uint64(w.token)}
			(&xport{w, to}).Send(m.From.Address, back)
			return
		}
	case *wire.Envelope:
		if w.model.plant == "a straggler is forgotten" && !w.open[to] && w.r[to].own > 0 {
			return
		}
	}
	w.router(to).Receive(m.msg, 0, m.number > 0)
}
