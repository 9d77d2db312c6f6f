package route

import (
	"container/heap"
	"fmt"
	"time"

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
