package route

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// This file is the world of TestExplore: real Routers, of which a step copies the
// one it touches, on links that keep order, and a name that moves between them.

const xnodes = 3

// xsaid is how many messages one node can say.
const xsaid = 4

// xrecord is what the store told of the name.
type xrecord struct {
	owner int // -1: nobody
	token lease.Token
}

// xworld is a state. What it points to is not changed once it is told.
type xworld struct {
	model *xmodel
	r     [xnodes]*Router
	links [xnodes][xnodes]xlink
	news  [xnodes][]xrecord // under way to each node
	box   [xnodes][]msg     // the actors' mailboxes
	open  [xnodes]bool
	hung  [xnodes][]msg // left with an actor that has not ended
	wakes [xnodes]bool  // Tick may be due

	owner   int
	token   lease.Token
	ending  bool // the actor's mail is still to come back
	to      int  // where the name goes then
	opening bool // the owner is still to open

	said             [xnodes]int
	handled, dropped [xnodes][xsaid]uint8
	broken           [xnodes][xsaid]bool // sent by its own node over a link that broke
	last             [xnodes]int
	disorder         bool
	doubles          bool // what a node has was taken back by another
	now              time.Duration
	moves, breaks    int // are left
	losses           int
	late             int // of times that pass though something is under way
}

// xlink carries mail one way. What is kept stays in frames until the sender hears that
// it was taken, which it does at once while the link is up, if the model has no breaks.
type xlink struct {
	msgs   []xmail
	frames []xframe
	number int
	taken  int
	down   bool
	waits  bool // the sender's Router is to be told of room
}

// xmail is a message on its way; number is above 0 if it is kept. heard is what its
// sender took.
type xmail struct {
	msg    proto.Message
	number int
	heard  int
}

type xframe struct {
	number int
	item   *Item
	msg    proto.Message
}

// xmodel is what is the same in all states.
type xmodel struct {
	say    [xnodes]int
	moves  []int // where the name goes, in turn; it begins at the first
	breaks int
	late   int
	losses int // the name is lost by an actor that does not end
	window int // of a link; 0: no bound
	limit  int
	adopts bool // a name that was transferred is adopted under a token of its own
	plant  string
}

// router returns a copy of node i's Router that belongs to w.
func (w *xworld) router(i int) *Router {
	if p, ok := w.r[i].port.(*xport); ok && p.w == w {
		return w.r[i]
	}
	r := *w.r[i]
	r.port = &xport{w, i}
	if r.pending != nil {
		c := *r.pending
		r.pending = &c
	}
	clones := map[*Item]*Item{}
	clone := func(it *Item) *Item {
		if it == nil {
			return nil
		}
		if clones[it] == nil {
			c := *it
			clones[it] = &c
		}
		return clones[it]
	}
	r.queue.lanes = slices.Clone(r.queue.lanes)
	for i := range r.queue.lanes {
		l := &r.queue.lanes[i]
		l.items = slices.Clone(l.items)
		for j := range l.items {
			l.items[j] = clone(l.items[j])
		}
	}
	r.queue.markers = slices.Clone(r.queue.markers)
	for i := range r.queue.markers {
		r.queue.markers[i] = clone(r.queue.markers[i])
	}
	w.r[i] = &r
	return &r
}

// publish has every node told of the present owner.
func (w *xworld) publish() {
	for i := range w.news {
		w.news[i] = append(slices.Clip(w.news[i]), xrecord{w.owner, w.token})
	}
}

// begin gives the name to a node.
func (w *xworld) begin(to int) {
	w.owner, w.opening = to, true
	w.token++
	w.publish()
}

func (x *xmodel) start() *xworld {
	w := &xworld{model: x, owner: -1, moves: len(x.moves) - 1, breaks: x.breaks, late: x.late, losses: x.losses}
	for i := range xnodes {
		c := configured(x.limit)
		c.Self, c.TTL = self(i), time.Hour
		w.r[i] = New(c, &xport{w, i})
	}
	w.begin(x.moves[0])
	return w
}

// handle has node i's actor take its next message.
func (w *xworld) handle(i int) {
	m := w.box[i][0]
	w.box[i] = w.box[i][1:]
	w.handled[m.sender][m.n-1]++
	if m.n < w.last[m.sender] {
		w.disorder = true
	}
	w.last[m.sender] = max(w.last[m.sender], m.n)
}

// back ends the actor of the owner and has its mail come back; then the name moves.
func (w *xworld) comeBack() {
	i := w.owner
	r := w.router(i)
	rest := slices.Clone(w.box[i])
	w.box[i] = nil
	switch w.model.plant {
	case "the backlog is forgotten":
		rest = nil
	case "the backlog comes back in the wrong order":
		slices.Reverse(rest)
	}
	for _, m := range rest {
		r.Back(Item{Local: m})
	}
	w.ending = false
	r.Closed()
	w.begin(w.to)
}

// openUp starts the actor of the owner.
func (w *xworld) openUp() {
	i := w.owner
	w.opening, w.open[i] = false, true
	if w.model.adopts && w.token > 1 {
		w.token++
		w.publish()
		w.router(i).Host(self(i), w.token-1, true) // it continues what was transferred
	}
	w.router(i).Open(w.token)
}

// lose has the owner lose the name, and leave its actor behind.
func (w *xworld) lose(to int) {
	i := w.owner
	w.open[i] = false
	w.hung[i], w.box[i] = w.box[i], nil
	w.router(i).Ending(true)
	w.router(i).Left()
	w.begin(to)
}

// late has the mail of an actor that was left come back.
func (w *xworld) comeLate(i int) {
	for _, m := range w.hung[i] {
		w.router(i).Back(Item{Local: m})
	}
	w.hung[i] = nil
	w.router(i).Closed()
}

// settle is what a planted mistake does after each step.
func (w *xworld) settle() {
	for i := range xnodes {
		if r := w.r[i]; w.model.plant == "markers are ignored" && r.pending != nil && !r.pending.ask {
			r = w.router(i)
			n := r.pending.number
			for j := range xnodes {
				w.links[i][j].msgs = slices.DeleteFunc(slices.Clone(w.links[i][j].msgs), func(m xmail) bool {
					x, ok := m.msg.(*wire.Marker)
					return ok && x.Number == n
				})
			}
			r.Receive(&wire.MarkerAck{Name: "x", Number: n, From: r.host.node, Token: uint64(r.host.token)}, 0, true)
		}
	}
}

func (w *xworld) unordered() (n int) {
	for _, r := range w.r {
		n += r.stats.Unordered
	}
	return n
}

// quiet reports whether nothing is under way, and nothing due.
func (w *xworld) quiet() bool {
	for i := range xnodes {
		if len(w.hung[i]) > 0 || len(w.news[i]) > 0 || w.open[i] && len(w.box[i]) > 0 {
			return false
		}
		for j := range xnodes {
			if len(w.links[i][j].msgs) > 0 || w.links[i][j].down {
				return false
			}
		}
	}
	return !w.ending && !w.opening
}

// show describes a state in words.
func (w *xworld) show() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  said %v handled %v dropped %v unordered %d, %d owns by %d\n", w.said, w.handled, w.dropped, w.unordered(), w.owner, w.token)
	for i, r := range w.r {
		fmt.Fprintf(&b, "  %c mailbox %v %s", 'a'+i, w.box[i], r.describe())
		for j := range xnodes {
			for _, m := range w.links[i][j].msgs {
				fmt.Fprintf(&b, "    under way to %c: %+v\n", 'a'+j, m)
			}
		}
	}
	return b.String()
}
