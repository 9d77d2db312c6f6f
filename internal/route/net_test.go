package route

import (
	"container/heap"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// world is some Routers on links like those of package transport, one name that moves
// between them, and a clock that jumps from event to event.
type world struct {
	r      *simulate.Random
	now    time.Duration
	queue  events
	serial int
	nodes  []*node
	links  map[[2]int]*link
	slow   time.Duration // the longest that a link takes
	each   time.Duration // the time that a link takes for one message
	window int           // of a link, in messages
	pace   time.Duration // the longest that an actor takes for one message
	config Config

	owner int // who holds the name; -1: nobody
	token lease.Token

	done    []msg       // what actors took, in order
	dropped map[msg]int // with a counter
	broken  map[msg]bool
	twice   map[msg]bool // taken back from a node that had taken it
	left    int          // actors that were left behind
	drops   int
	trace   []string
}

// msg is one message: the n-th of its sender.
type msg struct{ sender, n int }

type node struct {
	w       *world
	id      int
	life    int
	router  *Router
	mailbox []msg // of the actor here
	open    bool
	token   lease.Token
	sent    int
	freed   time.Duration
	opened  time.Duration
	work    bool
}

type occasion struct {
	at     time.Duration
	serial int
	f      func()
}

type events []occasion

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].serial < e[j].serial
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(occasion)) }
func (e *events) Pop() any {
	o := *e
	x := o[len(o)-1]
	*e = o[:len(o)-1]
	return x
}

func newWorld(seed uint64, nodes, limit int) *world {
	w := &world{r: histories.Random(seed), links: map[[2]int]*link{}, owner: -1, slow: 5 * time.Millisecond, window: 8192, pace: time.Millisecond,
		dropped: map[msg]int{}, broken: map[msg]bool{}, twice: map[msg]bool{}}
	w.config = configured(limit)
	for i := range nodes {
		n := &node{w: w, id: i}
		w.nodes = append(w.nodes, n)
		n.begin()
	}
	for i := range nodes {
		for j := range nodes {
			if i != j {
				w.links[[2]int{i, j}] = &link{w: w, from: w.nodes[i], to: w.nodes[j], up: true}
			}
		}
	}
	return w
}

// configured is what Routers of tests are for.
func configured(limit int) Config {
	return Config{Name: "x", Limit: limit, Bytes: 1 << 30, Custody: 1 << 30, Patience: time.Second, TTL: 10 * time.Second}
}

func self(i int) *wire.Node {
	return &wire.Node{Address: fmt.Sprint("n", i), Incarnation: fmt.Sprint("i", i)}
}

func (n *node) self() *wire.Node {
	return &wire.Node{Address: fmt.Sprint("n", n.id), Incarnation: fmt.Sprintf("i%d.%d", n.id, n.life)}
}

// begin starts a life of the node.
func (n *node) begin() {
	n.life++
	c := n.w.config
	c.Self = n.self()
	n.router = New(c, &port{n: n, life: n.life})
	n.mailbox, n.open, n.work = nil, false, false
}

func (w *world) after(d time.Duration, f func()) {
	w.serial++
	heap.Push(&w.queue, occasion{w.now + d, w.serial, f})
}

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.r.Int64N(int64(d) + 1)) }

func (w *world) logf(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%8v ", w.now)+fmt.Sprintf(format, args...))
}

// run lets d pass.
func (w *world) run(d time.Duration) {
	for end := w.now + d; ; {
		if len(w.queue) == 0 || w.queue[0].at > end {
			w.now = end
			return
		}
		o := heap.Pop(&w.queue).(occasion)
		w.now = o.at
		o.f()
	}
}

// say sends the next message of a node, now and then the short way.
func (n *node) say() {
	n.sent++
	m := msg{n.id, n.sent}
	if n.w.r.IntN(2) == 0 {
		if to, token, ok := n.router.Through(); ok && n.w.link(n, to.Address).room() {
			n.w.link(n, to.Address).straight(&wire.Envelope{Name: "x", Token: uint64(token), Payload: payload(m)})
			n.router.Went()
			return
		}
	}
	n.router.Accept(Item{Local: m, Size: 10})
}

func payload(m msg) []byte { return fmt.Appendf(nil, "%d %d", m.sender, m.n) }

// said is the message in an item.
func said(it *Item) (m msg) {
	if it.Wire == nil {
		return it.Local.(msg)
	}
	fmt.Sscanf(string(it.Wire.Payload), "%d %d", &m.sender, &m.n)
	return m
}

// take has the actor take one message.
func (n *node) take() {
	n.work = false
	if !n.open || len(n.mailbox) == 0 {
		return
	}
	n.w.done = append(n.w.done, n.mailbox[0])
	n.w.logf("n%d takes %v under %d", n.id, n.mailbox[0], n.token)
	n.mailbox = n.mailbox[1:]
	n.works()
}

func (n *node) works() {
	if !n.work && n.open && len(n.mailbox) > 0 {
		n.work = true
		life := n.life
		n.w.after(n.w.upTo(n.w.pace), func() {
			if life == n.life {
				n.take()
			}
		})
	}
}

// publish has every node learn of the present owner, each when it does.
func (w *world) publish() {
	owner, token := w.owner, w.token
	var who *wire.Node
	if owner >= 0 {
		who = w.nodes[owner].self()
	}
	for _, n := range w.nodes {
		at := max(w.now+w.upTo(w.slow), n.freed)
		n.freed = at // records come in order
		w.after(at-w.now, func() { n.router.Host(who, token, who != nil) })
	}
}

// move hands the name over, as a planned hand-over does: the actor here ends, its mail
// comes back, the name moves, the next starts when it knows.
func (w *world) move(to int) { w.drain(to, w.upTo(3*time.Millisecond)) }

// drain is a move that takes d for the actor to end.
func (w *world) drain(to int, d time.Duration) {
	if w.owner < 0 {
		w.start(to)
		return
	}
	n, life := w.nodes[w.owner], w.nodes[w.owner].life
	n.open = false
	n.router.Ending(false)
	w.logf("n%d ends", n.id)
	w.owner = -1
	w.after(d, func() {
		if n.life == life {
			n.comesBack()
			w.start(to)
		}
	})
}

// comesBack hands back what the actor has not taken.
func (n *node) comesBack() {
	rest := n.mailbox
	n.mailbox = nil
	for _, m := range rest {
		n.router.Back(Item{Local: m, Size: 10})
	}
	n.router.Closed()
}

// lose has the owner lose the name, with an actor that goes on for as long as d, or
// is left at once if it yields.
func (w *world) lose(to int, d time.Duration, yields bool) {
	n, life := w.nodes[w.owner], w.nodes[w.owner].life
	n.open = false
	w.left++
	w.logf("n%d loses the name", n.id)
	n.router.Ending(!yields)
	if yields {
		n.router.Left()
	}
	rest := n.mailbox
	n.mailbox = nil
	w.after(d, func() {
		for _, m := range rest {
			if n.life != life {
				w.broken[m] = true // with the node
				continue
			}
			n.router.Back(Item{Local: m, Size: 10})
		}
		if n.life == life {
			n.router.Closed()
		}
	})
	w.start(to)
}

func (w *world) start(to int) {
	w.owner = to
	w.token++
	token := w.token
	w.logf("n%d owns by %d", to, token)
	w.publish()
	n := w.nodes[to]
	life := n.life
	w.after(w.upTo(10*time.Millisecond), func() {
		if w.token == token && w.owner == to && n.life == life && n.router.phase == away {
			if w.r.IntN(2) == 0 { // it was transferred, and is adopted under a token of its own
				w.token++
				token = w.token
				w.publish()
			}
			n.open, n.token, n.opened = true, token, w.now
			n.router.Open(token)
			n.works()
			w.logf("n%d is open under %d", to, token)
		}
	})
}

// started reports whether the present owner's actor has been running for d.
func (w *world) started(d time.Duration) bool {
	return w.owner >= 0 && w.nodes[w.owner].open && w.nodes[w.owner].token == w.token && w.now >= w.nodes[w.owner].opened+d
}

func (w *world) unordered() (n int) {
	for _, x := range w.nodes {
		n += x.router.Stats().Unordered
	}
	return n
}

// verdict counts what is lost, doubled and out of order: each message is handled or
// dropped once.
func (w *world) verdict() (lost, doubled, disordered int) {
	seen := map[msg]int{}
	last := map[int]int{}
	for _, m := range w.done {
		if seen[m]++; seen[m] > 1 {
			continue
		}
		if m.n < last[m.sender] {
			disordered++
		}
		last[m.sender] = max(last[m.sender], m.n)
	}
	for _, n := range w.nodes {
		for i := range n.sent {
			m := msg{n.id, i + 1}
			switch fate := seen[m] + w.dropped[m]; {
			case fate == 0 && !w.broken[m]:
				w.logf("%v is lost", m)
				lost++
			case fate > 1 && !w.twice[m]:
				w.logf("%v handled %d dropped %d", m, seen[m], w.dropped[m])
				doubled++
			}
		}
	}
	return lost, doubled, disordered
}

// state says how every Router stands.
func (w *world) state() (text string) {
	for _, n := range w.nodes {
		text += fmt.Sprintf("n%d %s", n.id, n.router.describe())
	}
	return text
}

func (r *Router) describe() string {
	text := fmt.Sprintf("phase %d own %d floor %d host %v/%d known %v path %v %+v cross %+v %+v\n", r.phase, r.own, r.floor,
		r.host.node.GetAddress(), r.host.token, r.known, r.path.node.GetAddress(), r.path, r.pending, r.Stats())
	for _, l := range r.queue.lanes {
		for _, it := range l.items[:min(5, len(l.items))] {
			text += fmt.Sprintf("   first %v token %d: %+v\n", l.first, l.token, it)
		}
	}
	return text
}

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
