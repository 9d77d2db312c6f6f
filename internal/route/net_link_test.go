package route

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// link carries mail one way, as a channel of package transport does: in order, within
// a window, straight mail until it breaks, and kept mail beyond that.
type link struct {
	w        *world
	from, to *node
	up       bool
	life     int      // grows when it breaks: what was under way is lost
	way      []func() // what is on its way, the first first
	arrives  time.Duration
	stalled  time.Duration // nothing arrives before
	flying   int
	frames   []frame // kept and not acknowledged
	number   int
	taken    int   // by the receiver
	later    []any // messages about mail, for when it is up
	waits    bool
}

type frame struct {
	number int
	item   *Item
	msg    proto.Message
}

func (w *world) link(from *node, address string) *link {
	return w.links[[2]int{from.id, int(address[1] - '0')}]
}

func (l *link) room() bool { return l.up && l.flying < l.w.window }

// carry has f called when what is sent now arrives, else lost.
func (l *link) carry(f, lost func()) {
	w, life := l.w, l.life
	l.arrives = max(w.now+w.upTo(w.slow), l.arrives+w.each)
	l.way = append(l.way, func() {
		if l.life != life {
			lost()
		} else {
			f()
		}
	})
	w.after(l.arrives-w.now, l.arrive)
}

// arrive lets the first that is on its way arrive, unless the link is stalled.
func (l *link) arrive() {
	if w := l.w; w.now < l.stalled {
		w.after(l.stalled-w.now, l.arrive)
		return
	}
	first := l.way[0]
	l.way = l.way[1:]
	first()
}

// stall lets nothing arrive for d.
func (l *link) stall(d time.Duration) {
	l.stalled = l.w.now + d
	l.arrives = max(l.arrives, l.stalled+1)
}

// straight sends what may be lost.
func (l *link) straight(m proto.Message) {
	m = proto.Clone(m)
	mail, is := m.(*wire.Envelope)
	if !l.up {
		if !is {
			l.later = append(l.later, m)
		} else {
			l.w.broken[said(&Item{Wire: mail})] = true
		}
		return
	}
	if *verbose {
		l.w.logf("n%d -> n%d: %T %v", l.from.id, l.to.id, m, m)
	}
	if is {
		l.flying++
	}
	l.carry(func() {
		l.to.router.Receive(m, 10, false)
		if is {
			l.acknowledge()
		}
	}, func() {
		if is {
			l.w.broken[said(&Item{Wire: mail})] = true
		}
	})
}

// acknowledge tells the sender that a message was read, and what was taken.
func (l *link) acknowledge() {
	taken, life := l.taken, l.life
	l.w.links[[2]int{l.to.id, l.from.id}].carry(func() {
		if l.life == life {
			l.flying--
			l.confirmed(taken)
		}
	}, func() {})
}

// confirmed drops what was taken, and tells the Router if it waits, or if that was all.
func (l *link) confirmed(taken int) {
	n := len(l.frames)
	for len(l.frames) > 0 && l.frames[0].number <= taken {
		l.frames = l.frames[1:]
	}
	if l.waits && l.flying <= l.w.window*3/4 || n > 0 && len(l.frames) == 0 {
		l.waits = false
		l.linked()
	}
}

func (l *link) linked() {
	from := l.from
	life := from.life
	l.w.after(0, func() {
		if from.life == life {
			from.router.Linked(l.to.self().Address)
		}
	})
}

// transmit sends a frame.
func (l *link) transmit(f frame) {
	if *verbose {
		l.w.logf("n%d -> n%d: frame %d %v", l.from.id, l.to.id, f.number, f.msg)
	}
	l.flying++
	l.carry(func() {
		l.taken = f.number
		l.to.router.Receive(proto.Clone(f.msg), 10, true)
		l.acknowledge()
	}, func() {})
}

// breakLink loses what is under way between two nodes, and mends the links after d.
func (w *world) breakLink(a, b int, d time.Duration) {
	w.logf("the link of n%d and n%d breaks for %v", a, b, d)
	both := []*link{w.links[[2]int{a, b}], w.links[[2]int{b, a}]}
	for _, l := range both {
		l.life++
		l.up, l.flying = false, 0
		l.arrives, l.stalled = w.now, 0
		life := l.life
		w.after(d, func() {
			if l.life == life {
				l.mend(false)
			}
		})
	}
	for _, l := range both {
		l.from.router.Gone(l.to.self().Address)
	}
}

// mend makes the link anew: the receiver says what it took, and the rest goes on, or
// back if it is another life's.
func (l *link) mend(another bool) {
	l.up = true
	had := len(l.frames) > 0 || l.waits
	for len(l.frames) > 0 && l.frames[0].number <= l.taken && !another {
		l.frames = l.frames[1:]
	}
	if another {
		back := l.takeBack()
		l.taken, l.number = 0, 0
		if len(back) > 0 {
			l.from.router.Returned(back)
		}
	}
	for _, f := range l.frames {
		l.transmit(f)
	}
	for _, m := range l.later {
		l.straight(m.(proto.Message))
	}
	l.later = nil
	if had {
		l.waits = false
		l.linked()
	}
}

// takeBack returns what is kept, and notes what the receiver has all the same.
func (l *link) takeBack() (items []*Item) {
	for _, f := range l.frames {
		if e, ok := f.msg.(*wire.Envelope); ok && f.number <= l.taken {
			l.w.twice[said(&Item{Wire: e})] = true
		}
		items = append(items, f.item)
	}
	l.frames = nil
	return items
}

// restart ends a life of a node, with all that it had, and begins another at its
// address.
func (w *world) restart(i int, d time.Duration) {
	n := w.nodes[i]
	w.logf("n%d restarts", i)
	for _, m := range n.mailbox {
		w.broken[m] = true
	}
	for _, it := range n.router.queue.take() {
		if it.marker == nil {
			w.broken[said(it)] = true
		}
	}
	if w.owner == i {
		w.owner = -1
	}
	n.begin()
	for _, o := range w.nodes {
		if o == n {
			continue
		}
		out, in := w.links[[2]int{i, o.id}], w.links[[2]int{o.id, i}]
		for _, f := range out.frames {
			if e, ok := f.msg.(*wire.Envelope); ok {
				w.broken[said(&Item{Wire: e})] = true
			}
		}
		out.frames, out.later, out.waits = nil, nil, false
		for _, l := range []*link{out, in} {
			l.life++
			l.up, l.flying = false, 0
			l.arrives, l.stalled = w.now, 0
			life := l.life
			w.after(d, func() {
				if l.life == life {
					l.mend(true)
				}
			})
		}
		o.router.Gone(n.self().Address)
	}
}

// port is a life's Router's Port.
type port struct {
	n      *node
	life   int
	wakes  bool // Tick is to be called
	wakeAt time.Duration
}

func (p *port) Deliver(it *Item) {
	p.n.mailbox = append(p.n.mailbox, said(it))
	p.n.works()
}

func (p *port) Room(address string) bool {
	l := p.n.w.link(p.n, address)
	if !l.room() {
		l.waits = true
		return false
	}
	return true
}

func (p *port) Send(address string, m proto.Message) {
	if l := p.n.w.link(p.n, address); l != nil {
		l.straight(m)
	} // else to a former life
}

func (p *port) Keep(address string, it *Item, m proto.Message) bool {
	l := p.n.w.link(p.n, address)
	l.number++
	f := frame{l.number, it, proto.Clone(m)}
	l.frames = append(l.frames, f)
	if l.up {
		l.transmit(f)
	}
	return true
}

func (p *port) Recall(address string) []*Item {
	l := p.n.w.link(p.n, address)
	if l.up {
		return nil
	}
	return l.takeBack()
}

func (p *port) Encode(local any) (*wire.Envelope, error) {
	return &wire.Envelope{Payload: payload(local.(msg))}, nil
}

func (p *port) Drop(it *Item, why string) {
	p.n.w.drops++
	p.n.w.dropped[said(it)]++
	p.n.w.logf("n%d drops %v: %s", p.n.id, said(it), why)
}

func (p *port) Refuse(it *Item, reason wire.Reason, detail string) {
	p.Drop(it, reason.String()+detail)
}
func (p *port) Now() time.Duration { return p.n.w.now + 1 }
func (p *port) Members() (others []*wire.Node) {
	for _, n := range p.n.w.nodes {
		if n != p.n {
			others = append(others, n.self())
		}
	}
	return others
}

func (p *port) Wake(d time.Duration) {
	at := p.n.w.now + max(d, 0)
	if p.wakes && p.wakeAt <= at {
		return
	}
	p.wakes, p.wakeAt = true, at
	p.n.w.after(at-p.n.w.now, func() {
		if p.n.life == p.life && p.wakes && p.wakeAt == at {
			p.wakes = false
			p.n.router.Tick()
		}
	})
}
