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

// world is some Routers on links that keep order, one name that moves between
// them, and a clock that jumps from event to event.
type world struct {
	r      *simulate.Random
	now    time.Duration
	queue  events
	serial int
	nodes  []*node
	cut    map[[2]int]int // how often the link broke: what was sent before is lost
	down   map[[2]int]bool
	slow   time.Duration // the longest a link takes

	owner int // who holds the name; -1: nobody
	token lease.Token

	done  []msg // what actors took, in order
	drops int
	trace []string
}

// msg is one message: the n-th of its sender.
type msg struct{ sender, n int }

type node struct {
	w       *world
	id      int
	router  *Router
	mailbox []any // of the actor here
	open    bool
	token   lease.Token
	sent    int
	links   map[string]time.Duration // when the last message on a link arrives
	freed   time.Duration
	opened  time.Duration
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
	w := &world{r: histories.Random(seed), cut: map[[2]int]int{}, down: map[[2]int]bool{}, owner: -1, slow: 5 * time.Millisecond}
	for i := range nodes {
		n := &node{w: w, id: i, links: map[string]time.Duration{}}
		n.router = New(Config{Name: "x", Self: self(i), Limit: limit, Patience: time.Second, Rest: 5 * time.Second}, n)
		w.nodes = append(w.nodes, n)
	}
	return w
}

func self(i int) *wire.Node {
	return &wire.Node{Address: fmt.Sprint("n", i), Incarnation: fmt.Sprint("i", i)}
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

// Port.

func (n *node) Deliver(it Item) {
	local := it.Local
	if it.Wire != nil {
		var m msg
		fmt.Sscanf(string(it.Wire.Payload), "%d %d", &m.sender, &m.n)
		local = m
	}
	n.mailbox = append(n.mailbox, local)
	n.w.after(n.w.upTo(time.Millisecond), n.work)
}

// work has the actor take one message.
func (n *node) work() {
	if !n.open || len(n.mailbox) == 0 {
		return
	}
	n.w.done = append(n.w.done, n.mailbox[0].(msg))
	n.w.logf("n%d takes %v under %d", n.id, n.mailbox[0], n.token)
	n.mailbox = n.mailbox[1:]
}

func (n *node) Send(address string, m proto.Message) {
	w := n.w
	var to int
	fmt.Sscanf(address, "n%d", &to)
	link := [2]int{n.id, to}
	if w.down[link] {
		return
	}
	life := w.cut[link]
	at := max(w.now+w.upTo(w.slow), n.links[address])
	n.links[address] = at
	m = proto.Clone(m)
	if *verbose {
		w.logf("n%d -> n%d at %v: %v", n.id, to, at, m)
	}
	w.after(at-w.now, func() {
		if w.cut[link] == life {
			w.nodes[to].router.Receive(m)
		}
	})
}

func (n *node) Encode(local any) (*wire.Envelope, error) {
	m := local.(msg)
	return &wire.Envelope{Payload: fmt.Appendf(nil, "%d %d", m.sender, m.n)}, nil
}

func (n *node) Drop(Item)                        { n.w.drops++ }
func (n *node) Refuse(Item, wire.Reason, string) { n.w.drops++ }
func (n *node) Now() time.Duration               { return n.w.now }
func (n *node) Wake(d time.Duration)             { n.w.after(d, n.router.Tick) }
func (n *node) Soon()                            { n.w.after(n.w.upTo(time.Millisecond), n.router.Acknowledge) }

// say sends the next message of a node.
func (n *node) say() {
	n.sent++
	n.router.Accept(msg{n.id, n.sent})
}

// publish has every node learn of the present owner, each when it does.
func (w *world) publish() {
	owner, token := w.owner, w.token
	for _, n := range w.nodes {
		at := max(w.now+w.upTo(w.slow), n.freed)
		n.freed = at // records come in order
		w.after(at-w.now, func() {
			if owner < 0 {
				n.router.Host(nil, 0, false)
				return
			}
			n.router.Host(self(owner), token, true)
		})
	}
}

// move hands the name over, as a planned hand-over does: the actor here ends,
// its mail comes back, the name moves, the next starts when it knows.
func (w *world) move(to int) {
	if from := w.owner; from >= 0 {
		n := w.nodes[from]
		n.open = false
		n.router.Ending()
		rest := n.mailbox
		n.mailbox = nil
		w.logf("n%d ends", from)
		w.owner = -1
		w.after(w.upTo(3*time.Millisecond), func() {
			for _, m := range rest {
				n.router.Back(m)
			}
			for _, m := range n.mailbox { // posted meanwhile: there is none, the gate has ended
				panic(m)
			}
			n.router.Closed()
			w.start(to)
		})
		return
	}
	w.start(to)
}

func (w *world) start(to int) {
	w.owner = to
	w.token++
	token := w.token
	w.logf("n%d owns by %d", to, token)
	w.publish()
	n := w.nodes[to]
	w.after(w.upTo(10*time.Millisecond), func() {
		if w.token == token && w.owner == to {
			if w.r.IntN(2) == 0 { // it was transferred, and is adopted under a token of its own
				w.token++
				token = w.token
				w.publish()
			}
			n.open, n.token, n.opened = true, token, w.now
			n.router.Open(token)
			w.logf("n%d is open under %d", to, token)
		}
	})
}

// started reports whether the present owner's actor has been running for d.
func (w *world) started(d time.Duration) bool {
	return w.owner >= 0 && w.nodes[w.owner].open && w.nodes[w.owner].token == w.token && w.now >= w.nodes[w.owner].opened+d
}

// breakLink loses what is under way between two nodes and tells both.
func (w *world) breakLink(a, b int) {
	w.cut[[2]int{a, b}]++
	w.cut[[2]int{b, a}]++
	w.nodes[a].router.Gone(self(b).Address)
	w.nodes[b].router.Gone(self(a).Address)
}

func (w *world) unordered() (n int) {
	for _, x := range w.nodes {
		n += x.router.Stats().Unordered
	}
	return n
}

// verdict counts what is lost, doubled and out of order.
func (w *world) verdict() (lost, doubled, disordered int) {
	seen := map[msg]int{}
	last := map[int]int{}
	for _, m := range w.done {
		if seen[m]++; seen[m] > 1 {
			doubled++
			continue
		}
		if m.n < last[m.sender] {
			disordered++
		}
		last[m.sender] = max(last[m.sender], m.n)
	}
	for _, n := range w.nodes {
		for i := 1; i <= n.sent; i++ {
			if seen[msg{n.id, i}] == 0 {
				lost++
			}
		}
	}
	return lost, doubled, disordered
}

// state says how every Router stands.
func (w *world) state() (text string) {
	for _, n := range w.nodes {
		r := n.router
		text += fmt.Sprintf("n%d own %d past %d ending %v host %v/%d known %v doubt %v path %+v cross %+v out to %s %d %+v\n", n.id, r.own, r.past, r.ending,
			r.host.node.GetAddress(), r.host.token, r.known, r.doubt, r.path, r.cross, r.out.to, len(r.out.items), r.Stats())
		for _, it := range r.buffer.items {
			text += fmt.Sprintf("   %v routed %d\n", it, it.routed())
		}
	}
	return text
}

var _ = lease.Token(0)
