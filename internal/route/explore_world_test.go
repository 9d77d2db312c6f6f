package route

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/explore"
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
	links [xnodes][xnodes][]proto.Message
	news  [xnodes][]xrecord // under way to each node
	box   [xnodes][]msg     // the actors' mailboxes
	open  [xnodes]bool
	soon  [xnodes]bool // Acknowledge is due
	wakes [xnodes]bool // Tick may be due

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
	doubles          bool // a link broke under a relay that was not acknowledged
	now              time.Duration
	moves, breaks    int // are left
	late             int // of times that pass though something is under way
}

// xmodel is what is the same in all states.
type xmodel struct {
	say    [xnodes]int
	moves  []int // where the name goes, in turn; it begins at the first
	breaks int
	late   int
	limit  int
	adopts bool // a name that was transferred is adopted under a token of its own
	plant  string
}

// xport is a Router's Port in one state.
type xport struct {
	w  *xworld
	id int
}

func (p *xport) Deliver(it Item) {
	p.w.box[p.id] = append(slices.Clip(p.w.box[p.id]), said(it))
}

func (p *xport) Send(address string, m proto.Message) {
	to := int(address[1] - '0')
	p.w.links[p.id][to] = append(slices.Clip(p.w.links[p.id][to]), m)
}

func (p *xport) Encode(m any) (*wire.Envelope, error) { return (&node{}).Encode(m) }
func (p *xport) Drop(it Item)                         { m := said(it); p.w.dropped[m.sender][m.n-1]++ }
func (p *xport) Refuse(it Item, _ wire.Reason, _ string) {
	p.Drop(it)
}
func (p *xport) Now() time.Duration { return p.w.now }
func (p *xport) Wake(time.Duration) { p.w.wakes[p.id] = true }
func (p *xport) Soon()              { p.w.soon[p.id] = true }

// router returns a copy of node i's Router that belongs to w.
func (w *xworld) router(i int) *Router {
	if p, ok := w.r[i].port.(*xport); ok && p.w == w {
		return w.r[i]
	}
	r := *w.r[i]
	r.port = &xport{w, i}
	if r.cross != nil {
		c := *r.cross
		r.cross = &c
	}
	r.back, r.held.items, r.buffer.items = slices.Clone(r.back), slices.Clone(r.held.items), slices.Clone(r.buffer.items)
	r.out.items = slices.Clone(r.out.items)
	r.acks = maps.Clone(r.acks)
	r.in = make(map[string]*inbox, len(r.in))
	for inc, in := range w.r[i].in {
		c := *in
		r.in[inc] = &c
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
	w := &xworld{model: x, owner: -1, moves: len(x.moves) - 1, breaks: x.breaks, late: x.late}
	for i := range xnodes {
		w.r[i] = New(Config{Name: "x", Self: self(i), Limit: x.limit, Patience: time.Second, Rest: 5 * time.Second}, &xport{w, i})
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
		r.Back(m)
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

// breakLink loses what is under way between two nodes and tells both.
func (w *xworld) breakLink(x, y int) {
	for _, l := range [][2]int{{x, y}, {y, x}} {
		o := &w.r[l[0]].out
		w.doubles = w.doubles || o.addr == self(l[1]).Address && len(o.items) > 0
		for _, m := range w.links[l[0]][l[1]] {
			if e, ok := m.(*wire.Envelope); ok {
				if m := said(Item{Wire: e}); m.sender == l[0] {
					w.broken[m.sender][m.n-1] = true
				}
			}
		}
		w.links[l[0]][l[1]] = nil
	}
	w.router(x).Gone(self(y).Address)
	w.router(y).Gone(self(x).Address)
}

// receive hands the next message on a link over.
func (w *xworld) receive(from, to int) {
	q := w.links[from][to]
	m := q[0]
	w.links[from][to] = q[1:]
	switch m := m.(type) {
	case *wire.Marker:
		if w.model.plant == "a marker is answered by whoever gets it" && int(m.From.Address[1]-'0') != to {
			back := &wire.MarkerAck{Name: "x", Number: m.Number, From: self(w.owner), Token: uint64(w.token)}
			(&xport{w, to}).Send(m.From.Address, back)
			return
		}
	case *wire.Envelope:
		if w.model.plant == "a straggler is forgotten" && !w.open[to] && w.r[to].past > 0 {
			return
		}
	case *wire.Relay:
		if in := w.r[to].in[m.From.Incarnation]; w.model.plant == "a relay that comes again is taken up again" && in != nil && m.Sequence <= in.last {
			w.router(to).in[m.From.Incarnation].last = m.Sequence - 1
		}
	}
	w.router(to).Receive(m)
}

// settle is what a planted mistake does after each step.
func (w *xworld) settle() {
	for i := range xnodes {
		switch r := w.r[i]; {
		case w.model.plant == "markers are ignored" && r.cross != nil && !r.cross.probe:
			r = w.router(i)
			n := r.cross.number
			for j := range xnodes {
				w.links[i][j] = slices.DeleteFunc(slices.Clone(w.links[i][j]), func(m proto.Message) bool {
					x, ok := m.(*wire.Marker)
					return ok && x.Number == n
				})
			}
			r.answered(&wire.MarkerAck{Name: "x", Number: n, From: r.host.node, Token: uint64(r.host.token)})
		case w.model.plant == "relays are not kept" && len(r.out.items) > 0:
			w.router(i).out.items = nil
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
		if w.soon[i] || len(w.news[i]) > 0 || w.open[i] && len(w.box[i]) > 0 {
			return false
		}
		for j := range xnodes {
			if len(w.links[i][j]) > 0 {
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
		fmt.Fprintf(&b, "  %c own %d past %d ending %v host %v/%d known %v doubt %v path %+v cross %+v mailbox %v\n", 'a'+i, r.own, r.past, r.ending,
			r.host.node.GetAddress(), r.host.token, r.known, r.doubt, r.path, r.cross, w.box[i])
		for _, it := range r.buffer.items {
			fmt.Fprintf(&b, "    waits: %+v\n", it)
		}
		for j := range xnodes {
			for _, m := range w.links[i][j] {
				fmt.Fprintf(&b, "    under way to %c: %v\n", 'a'+j, m)
			}
		}
	}
	return b.String()
}

// key encodes what makes a difference: times only by how long ago they were.
func (w *xworld) key() explore.Key {
	b := make([]byte, 0, 1024)
	put := func(ns ...int) {
		for _, n := range ns {
			b = append(b, byte(n), byte(n>>8))
		}
	}
	flag := func(fs ...bool) {
		for _, f := range fs {
			if f {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		}
	}
	since := func(t time.Duration) int {
		return int(min(max(t-w.now, -10*time.Second), 10*time.Second) / (100 * time.Millisecond))
	}
	name := func(n *wire.Node) int {
		if a := n.GetAddress(); a != "" {
			return int(a[1] - '0')
		}
		return -1
	}
	inc := func(s string) int {
		if s == "" {
			return -1
		}
		return int(s[1] - '0')
	}
	var message func(m proto.Message)
	message = func(m proto.Message) {
		switch m := m.(type) {
		case *wire.Envelope:
			x := said(Item{Wire: m})
			put(1, x.sender, x.n, int(m.Token), int(m.Hops))
		case *wire.Marker:
			put(2, name(m.From), int(uint32(m.Number)), int(m.Token), int(m.Hops))
		case *wire.MarkerAck:
			put(3, name(m.From), int(uint32(m.Number)), int(m.Token))
		case *wire.Relay:
			put(4, name(m.From), inc(m.To), int(uint32(m.Stream)), int(m.Sequence))
			if m.GetEnvelope() != nil {
				message(m.GetEnvelope())
			} else {
				message(m.GetMarker())
			}
		case *wire.RelayAck:
			put(5, name(m.From), int(uint32(m.Stream)), int(m.Sequence))
			flag(m.Again)
		}
	}
	item := func(it Item) {
		flag(it.kept, it.first)
		switch {
		case it.Wire != nil:
			message(it.Wire)
		case it.marker != nil:
			message(it.marker)
		default:
			m := it.Local.(msg)
			put(6, m.sender, m.n)
		}
	}
	items := func(list []Item) {
		put(len(list))
		for _, it := range list {
			item(it)
		}
	}
	way := func(h hop) {
		flag(h.here)
		put(name(h.node), int(h.token))
	}
	for i, r := range w.r {
		flag(r.open, r.ending, r.known, r.doubt, r.path.used, r.path.dead, r.served, r.cross != nil, w.open[i], w.soon[i], w.wakes[i])
		put(int(r.own), int(r.past), int(r.since), int(r.before), int(uint32(r.number)), since(r.path.sent), r.stats.Unordered)
		way(r.host)
		way(r.path.hop)
		if r.cross != nil {
			put(int(uint32(r.cross.number)), since(r.cross.until))
			way(r.cross.via)
			flag(r.cross.probe)
		}
		items(r.back)
		items(r.held.items)
		items(r.buffer.items)
		put(inc(r.out.to), int(uint32(r.out.stream)), int(r.out.next), len(r.out.items))
		if len(r.out.items) > 0 {
			put(since(r.out.again))
		}
		for _, k := range r.out.items {
			put(int(k.sequence))
			item(k.item)
		}
		for j := range xnodes {
			from := self(j).Incarnation
			in := r.in[from]
			flag(in != nil, r.acks[from])
			if in != nil {
				put(int(uint32(in.stream)), int(in.last))
				flag(in.refused)
			}
			put(len(w.links[i][j]))
			for _, m := range w.links[i][j] {
				message(m)
			}
		}
		put(len(w.news[i]), len(w.box[i]), w.said[i], w.last[i])
		for _, n := range w.news[i] {
			put(n.owner, int(n.token))
		}
		for _, m := range w.box[i] {
			put(m.sender, m.n)
		}
		for n := range xsaid {
			put(int(w.handled[i][n]), int(w.dropped[i][n]))
			flag(w.broken[i][n])
		}
	}
	flag(w.ending, w.opening, w.disorder, w.doubles)
	put(w.owner, int(w.token), w.to, w.moves, w.breaks, w.late)
	return explore.HashBytes(b)
}
