package route

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

var (
	errDoubled  = errors.New("a message is handled twice")
	errDisorder = errors.New("a sender's messages are handled out of order")
	errDropped  = errors.New("a message is dropped that no bound was in the way of")
)

// steps tells what can happen in w.
func (x *xmodel) steps(w *xworld, tell func(explore.Step[*xworld])) {
	step := func(what string, a, b int, sure bool, do func(w *xworld)) {
		next := *w
		do(&next)
		next.settle()
		tell(explore.Step[*xworld]{Label: explore.Label{What: what, A: uint8(a), B: uint8(b)}, Sure: sure, Next: &next})
	}
	for i := range xnodes {
		a := i + 1
		if w.said[i] < x.say[i] {
			step(fmt.Sprintf("says %d", w.said[i]+1), a, 0, false, func(w *xworld) {
				w.said[i]++
				w.router(i).Accept(Item{Local: msg{i, w.said[i]}})
			})
			if to, token, ok := w.r[i].Through(); ok && w.room(&w.links[i][int(to.Address[1]-'0')]) {
				step(fmt.Sprintf("says %d, the short way", w.said[i]+1), a, 0, false, func(w *xworld) {
					w.said[i]++
					w.router(i).Went()
					(&xport{w, i}).Send(to.Address, &wire.Envelope{Name: "x", Token: uint64(token), Payload: payload(msg{i, w.said[i]})})
				})
			}
		}
		if w.open[i] && len(w.box[i]) > 0 {
			step(fmt.Sprintf("handles %v", w.box[i][0]), a, 0, true, func(w *xworld) { w.handle(i) })
		}
		if len(w.news[i]) > 0 {
			n := w.news[i][0]
			step(fmt.Sprintf("learns that %c owns by %d", 'a'+n.owner, n.token), a, 0, true, func(w *xworld) {
				w.news[i] = w.news[i][1:]
				w.router(i).Host(self(n.owner), n.token, true)
			})
		}
		if len(w.hung[i]) > 0 {
			step("the mail of the actor that was left is back", a, 0, true, func(w *xworld) { w.comeLate(i) })
		}
		for j := range xnodes {
			if len(w.links[i][j].msgs) > 0 {
				step(kind(w.links[i][j].msgs[0].msg), a, j+1, true, func(w *xworld) { w.receive(i, j) })
			}
			if w.links[i][j].down && j < i {
				step("the link is mended", j+1, a, true, func(w *xworld) { w.mend(i, j) })
			} else if j < i && w.breaks > 0 {
				step("the link breaks", j+1, a, false, func(w *xworld) { w.breaks--; w.breakLink(i, j) })
			}
		}
	}
	if w.ending {
		step("its mail is back", w.owner+1, 0, true, func(w *xworld) { w.comeBack() })
	}
	if w.opening {
		step("opens", w.owner+1, 0, true, func(w *xworld) { w.openUp() })
	}
	if w.moves > 0 && !w.ending && !w.opening {
		to := x.moves[len(x.moves)-w.moves]
		step("ends, for the next", w.owner+1, to+1, false, func(w *xworld) {
			w.moves--
			w.ending, w.to, w.open[w.owner] = true, to, false
			w.router(w.owner).Ending(false)
		})
		if w.losses > 0 && w.open[w.owner] {
			step("loses the name to the next", w.owner+1, to+1, false, func(w *xworld) {
				w.moves--
				w.losses--
				w.lose(to)
			})
		}
	}
	if quiet := w.quiet(); (quiet || w.late > 0) && w.wakes != [xnodes]bool{} {
		step("a second passes", 0, 0, quiet, func(w *xworld) {
			if !quiet {
				w.late--
			}
			w.now += time.Second
			for i := range xnodes {
				if w.wakes[i] {
					w.wakes[i] = false
					w.router(i).Tick()
				}
			}
		})
	}
}

func kind(m proto.Message) string {
	if m == nil {
		return "what was taken is heard"
	}
	return fmt.Sprintf("%T", m)[len("*wire."):]
}

// check is what must hold in every state.
func (x *xmodel) check(w *xworld) error {
	given := w.unordered() > 0 // order was given up, and counted
	for i := range xnodes {
		for n := range xsaid {
			switch fate := w.handled[i][n] + w.dropped[i][n]; {
			case fate > 1 && !w.doubles:
				return errDoubled
			case w.dropped[i][n] > 0 && x.limit >= 10:
				return errDropped
			}
		}
	}
	if w.disorder && !given && !w.doubles && w.breaks == x.breaks && x.limit >= 10 {
		return errDisorder
	}
	return nil
}

// goal: every message has met its fate, and nothing waits but at the holder.
func (x *xmodel) goal(w *xworld) bool {
	for i, r := range w.r {
		if !r.Idle() && i != w.owner || !r.queue.empty() {
			return false
		}
		for n := range w.said[i] {
			if w.handled[i][n]+w.dropped[i][n] == 0 && !w.broken[i][n] {
				return false
			}
		}
	}
	return true
}

func (x *xmodel) space() explore.Space[*xworld] {
	return explore.Space[*xworld]{Start: []*xworld{x.start()}, Steps: x.steps, Key: (*xworld).key, Check: x.check, Goal: x.goal, Show: (*xworld).show}
}

// Models that are visited in the commit tier, and those of the nightly tier. Nodes are 0, 1 and 2.
var (
	smallModels = []xmodel{
		{say: [xnodes]int{1, 0, 1}, moves: []int{0, 1}, limit: 10},
		{say: [xnodes]int{0, 0, 3}, moves: []int{0, 1}, limit: 1},
		{say: [xnodes]int{0, 0, 1}, moves: []int{0, 1, 0}, limit: 10},
		{say: [xnodes]int{0, 0, 1}, moves: []int{0, 1}, limit: 10, breaks: 1},
		{say: [xnodes]int{0, 0, 1}, moves: []int{0, 1}, limit: 10, late: 1},
		{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1}, limit: 10, window: 1},
		{say: [xnodes]int{1, 0, 1}, moves: []int{0, 1}, limit: 10, losses: 1},
	}
	largeModels = []xmodel{
		{say: [xnodes]int{0, 0, 3}, moves: []int{0, 1}, limit: 10},
		{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1}, limit: 10, adopts: true},
		{say: [xnodes]int{1, 0, 1}, moves: []int{0, 1}, limit: 10, adopts: true},
		{say: [xnodes]int{1, 0, 2}, moves: []int{0, 1}, limit: 10},
		{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1, 0}, limit: 10},
		{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1, 2}, limit: 10},
		{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1}, limit: 10, breaks: 1},
		{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1}, limit: 10, late: 1},
		{say: [xnodes]int{2, 0, 0}, moves: []int{0, 1, 0, 1}, limit: 10, window: 1},
	}
)

// String names the model's bounds.
func (x *xmodel) String() string { return fmt.Sprintf("%+v", *x) }

// TestExplore visits all that three Routers can come to together while a name moves
// between them, or to a third: with links that live nothing is lost, doubled, or out
// of order, and what a bound has no room for is counted; and a way always leads to
// where all mail has arrived.
func TestExplore(t *testing.T) {
	switches := 0
	list := tier.Models(smallModels, largeModels)
	for i := range list {
		x := &list[i]
		t.Run(x.String(), func(t *testing.T) {
			space := x.space()
			check := space.Check
			space.Check = func(w *xworld) error {
				for _, r := range w.r {
					switches += r.stats.PathSwitches
				}
				return check(w)
			}
			rep := explore.Run(space)
			t.Log(rep)
			if rep.Violation != nil {
				t.Fatal(rep.Violation)
			}
			require.True(t, rep.Whole)
		})
	}
	require.NotZero(t, switches, "no mail ever crossed")
}

// planted are mistakes in a Router, or around it.
var planted = []struct {
	what  string
	model xmodel
	want  error
}{
	{"markers are ignored", xmodel{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1}, limit: 10}, errDisorder},
	{"a marker is answered by any node that gets it", xmodel{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1}, limit: 10}, errDisorder},
	{"the backlog is forgotten", xmodel{say: [xnodes]int{0, 0, 1}, moves: []int{0, 1}, limit: 10}, explore.ErrDeadEnd},
	{"the backlog comes back in the wrong order", xmodel{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1}, limit: 10}, errDisorder},
	{"a straggler is forgotten", xmodel{say: [xnodes]int{0, 0, 1}, moves: []int{0, 1}, limit: 10}, explore.ErrDeadEnd},
	{"custody is forgotten", xmodel{say: [xnodes]int{0, 0, 1}, moves: []int{0, 1}, limit: 10, breaks: 1}, explore.ErrDeadEnd},
	{"a frame is taken twice", xmodel{say: [xnodes]int{0, 0, 1}, moves: []int{0, 1}, limit: 10, breaks: 1}, errDoubled},
}

// A model that finds nothing has to be one that would have.
func TestExploreFindsPlantedMistakes(t *testing.T) {
	for _, p := range tier.Models(planted, nil) {
		t.Run(p.what, func(t *testing.T) {
			p.model.plant = p.what
			rep := explore.Run(p.model.space())
			require.NotNil(t, rep.Violation, "not found in %v", rep)
			t.Logf("%v\n%v", rep, rep.Violation)
			require.ErrorIs(t, rep.Violation, p.want)
			require.LessOrEqual(t, len(rep.Violation.Trace), 25)
		})
	}
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
	message := func(m proto.Message) {
		switch m := m.(type) {
		case *wire.Envelope:
			x := said(&Item{Wire: m})
			put(1, x.sender, x.n, int(m.Token), int(m.Hops))
		case *wire.Marker:
			put(2, name(m.From), int(uint8(m.Number)), int(m.Token), int(m.Hops))
		case *wire.MarkerAck:
			put(3, name(m.From), int(uint8(m.Number)), int(m.Token))
		case *wire.MarkerWaits:
			put(4, name(m.From), int(uint8(m.Number)))
		}
	}
	item := func(it *Item) {
		flag(it.kept, it.first, it.gone)
		put(it.tries, int(it.under))
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
	items := func(list []*Item) {
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
		flag(r.known, r.lost, r.path.used, r.path.dead, r.path.confirmed, r.served, r.hearsay, r.doubted, r.pending != nil, w.open[i], w.wakes[i])
		put(int(r.phase), int(r.own), int(r.floor), int(uint8(r.number)), r.stats.Unordered, since(r.noted), len(w.hung[i]))
		way(r.host)
		way(r.path.hop)
		if r.pending != nil {
			put(int(uint8(r.pending.number)), since(r.pending.until), int(r.pending.pause/time.Second))
			way(r.pending.via)
			flag(r.pending.ask)
		}
		put(len(r.queue.lanes))
		for _, l := range r.queue.lanes {
			items(l.items)
		}
		for j := range xnodes {
			l := &w.links[i][j]
			flag(l.down, l.waits)
			first := 0 // numbers are told by how far they are from the last
			put(len(l.msgs), len(l.frames), l.number-l.taken)
			for _, m := range l.msgs {
				if first = m.number; first > 0 {
					first = l.number - first + 1
				}
				put(first, m.heard)
				if m.msg != nil {
					message(m.msg)
				}
			}
			for _, f := range l.frames {
				put(l.number - f.number)
				item(f.item)
				message(f.msg)
			}
		}
		put(len(w.news[i]), len(w.box[i]), w.said[i], w.last[i])
		for _, n := range w.news[i] {
			put(n.owner, int(n.token))
		}
		for _, m := range w.box[i] {
			put(m.sender, m.n)
		}
		for _, m := range w.hung[i] {
			put(m.sender, m.n)
		}
		for n := range xsaid {
			put(int(w.handled[i][n]), int(w.dropped[i][n]))
			flag(w.broken[i][n])
		}
	}
	flag(w.ending, w.opening, w.disorder, w.doubles)
	put(w.owner, int(w.token), w.to, w.moves, w.breaks, w.late, w.losses)
	return explore.HashBytes(b)
}

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
