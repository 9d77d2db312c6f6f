//go:build linux

package nodes

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

// ownership is what a worker works under: singleton.Guarded or *sharding.Entity.
type ownership interface {
	lease.Ownership
	CheckAlive() bool
	Context() context.Context
}

// worker is a singleton, or an account.
type worker struct {
	node    *node
	name    int // -1: an account's, which Started tells
	target  uint16
	own     ownership
	n       int
	writing atomic.Bool
	bookkeeper
}

// A worker writes with the first letter and with every writeEvery-th from then on.
const writeEvery = 5

// ranOut says of a loss that the lease's time had run out.
const ranOut = 1

// losses are why a lease may end against its holder's will.
var losses = []error{lease.ErrExpired, lease.ErrTakenOver, lease.ErrRecordGone, lease.ErrInconsistent}

// Receive implements actor.Actor.
func (w *worker) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		w.begin(ctx)
	case *actor.Stopped:
		if w.own != nil {
			w.note(entry{at: machine.Now(), kind: ended, target: w.target})
			if w.name >= w.node.Names.Singletons {
				w.node.active.Add(-1)
			}
		}
	case beat:
		w.tick(ctx)
	case letter:
		if held := w.node.held.Load(); held != nil {
			w.note(entry{at: machine.Now(), kind: holding, target: w.target})
			<-*held
		}
		e := entry{at: machine.Now(), kind: handled, sent: time.Duration(msg.Sent), sender: msg.Sender, seq: msg.Seq, target: msg.Target}
		if !w.own.CheckAlive() {
			e.kind = overran
		}
		w.note(e)
		if w.node.Writes && w.n%writeEvery == 0 && w.writing.CompareAndSwap(false, true) {
			go w.jot(w.n)
		}
		w.n++
		if w.node.Ledger && msg.Seq > 0 && !w.job(msg) {
			return // not done, so not answered
		}
		if ctx.Sender() != nil {
			ctx.Respond(receipt{Target: msg.Target, Seq: msg.Seq, Token: uint64(w.own.Token())})
		}
	}
}

func (w *worker) begin(ctx actor.Context) {
	if g, ok := singleton.Of(ctx); ok && w.name >= 0 {
		w.own = g
	} else if e, ok := sharding.Of(ctx); ok {
		w.own, w.name, w.target = e, w.node.Names.Singletons+e.Shard(), uint16(w.node.numbers[e.ID()])
		w.node.active.Add(1)
		w.node.leaks.one()
	} else {
		panic("a worker must run as a singleton or an entity")
	}
	at := machine.Now()
	if w.own.CheckAlive() {
		w.note(entry{at: at, kind: began, target: w.target})
	}
	if w.node.Ledger {
		w.open(ctx)
	}
	done := w.own.Context()
	context.AfterFunc(done, func() {
		cause := context.Cause(done)
		if !slices.ContainsFunc(losses, func(l error) bool { return errors.Is(cause, l) }) {
			return
		}
		e := entry{at: machine.Now(), kind: lost}
		if errors.Is(cause, lease.ErrExpired) {
			e.seq = ranOut
		}
		w.note(e)
	})
}

// note adds the name and the token.
func (w *worker) note(e entry) {
	e.name, e.token = uint16(w.name), uint64(w.own.Token())
	w.node.journal.Note(e)
}

// jot writes to the fenced journal. It asks nobody whether it may, as a careless
// worker would: the condition of the write is all that stands between a stale one and
// the data.
func (w *worker) jot(n int) {
	defer w.writing.Store(false)
	_ = w.append(writeText(uint64(w.own.Token()), w.node.Index, w.node.Life, n)) // what is not known the journal will show
}

// writeText is what a worker appends: its token, and who it is.
func writeText(token uint64, index, life, n int) string {
	return fmt.Sprintf("%d %d %d %d", token, index, life, n)
}

// append writes to the fenced journal: of the worker's name, or, for a ledger, its own. lease.ErrStale:
// the store refused it.
func (w *worker) append(text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var condition lease.Ownership = w.own
	if w.node.Broken {
		condition = nil
	}
	name := w.name
	if w.node.Ledger {
		name = int(w.target)
	}
	for w.node.cut.Load() {
		if err := machine.Pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	err := w.node.client.Write(ctx, condition, name, text)
	switch e := (entry{at: machine.Now(), kind: wrote, target: w.target}); {
	case err == nil:
		w.note(e)
	case errors.Is(err, lease.ErrStale):
		e.kind = refused
		w.note(e)
	}
	return err
}

// account is a worker that hands its state over: the token it ran under, and how many
// accounts left one before it, so that each state is told from all others.
type account struct {
	worker
	from uint64 // the token under which the state was left; 0: none was given
	life uint32 // accounts before it that left a state
}

// Receive implements actor.Actor.
func (a *account) Receive(ctx actor.Context) {
	a.worker.Receive(ctx)
	if _, ok := ctx.Message().(*actor.Started); ok && a.from != 0 {
		a.note(entry{at: machine.Now(), kind: gotState, target: a.target, seq: a.from, sender: a.life})
	}
}

const stateSize = 12

// HandOverState implements hosting.Stateful.
func (a *account) HandOverState() ([]byte, error) {
	if a.own == nil {
		return nil, nil // its lease ended before it could begin
	}
	a.note(entry{at: machine.Now(), kind: leftState, target: a.target, seq: uint64(a.life + 1)})
	size := a.node.State
	if int(a.target) == a.node.Names.Singletons && a.node.Large > 0 {
		size = a.node.Large
	}
	state := binary.LittleEndian.AppendUint64(make([]byte, 0, max(size, stateSize)), uint64(a.own.Token()))
	state = binary.LittleEndian.AppendUint32(state, a.life+1)
	return state[:max(size, stateSize)], nil
}

// RestoreState implements hosting.Stateful.
func (a *account) RestoreState(state []byte) error {
	if len(state) < stateSize {
		return fmt.Errorf("a state of %d bytes, must be %d", len(state), stateSize)
	}
	a.from, a.life = binary.LittleEndian.Uint64(state), binary.LittleEndian.Uint32(state[8:])
	return nil
}

// leaks are made to see that they are found out.
type leaks struct {
	kinds string // see settings
	mu    sync.Mutex
	kept  [][]byte
}

// one leaks once.
func (l *leaks) one() {
	if strings.Contains(l.kinds, "goroutines") {
		go func() { select {} }()
	}
	if strings.Contains(l.kinds, "heap") {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.kept = append(l.kept, make([]byte, 16<<10))
	}
}

// heapMost bounds what is on the heap of a process at any time, in MiB.
const heapMost = 300

// Of slow links.
const (
	farDelay  = 50 * time.Millisecond
	farJitter = 250 * time.Millisecond
)

// newLinked starts nodes over links that can be slowed down, and waits until all names have answered
// all nodes.
func newLinked(ctx context.Context, r *scene.Run, n, room int, s settings) (*crew, *machine.Links) {
	c := newCrew(ctx, r, n, 1, newProxies, s)
	c.room = room
	if err := scene.Try(func() {
		for i := range n { // the first comes first
			c.up(ctx, i)
		}
		c.order(ctx, order{Do: doWake, Within: time.Second}, 2*patience)
	}); err != nil {
		c.end()
		scene.Check(err)
	}
	return c, c.net.links
}

// settleMail ends the load, and judges: what was lost must have been counted since before. then is done
// in between.
func (c *crew) settleMail(ctx context.Context, what string, before []weight, then func()) (es []seen, j *judgement, givenUp int64) {
	c.quiet(ctx, 2*time.Second, time.Minute)
	_, was := counted(before)
	sum, givenUp := counted(c.weights(ctx))
	then()
	c.Printf("   %scounted by the product: %v", what, sum)
	es, j = c.judged(func(ev *evidence) {
		ev.calms, ev.loose, ev.counted = []span{{0, machine.Now()}}, true, givenUp-was
	})
	c.holdHeap(what, heapMost)
	return es, j, givenUp - was
}

// window is a part of a run, and how many bytes went over the links in it.
type window struct {
	span
	bytes int64
}

// watched lets time pass with all links of a shape.
func watched(ctx context.Context, l *machine.Links, s machine.Shape, d time.Duration) (w window) {
	l.Shape(s)
	w.from, w.bytes = machine.Now(), l.Bytes()
	scene.Check(machine.Pause(ctx, d))
	w.to, w.bytes = machine.Now(), l.Bytes()-w.bytes
	return w
}

// perLetter is how many bytes went over the links for each letter that was sent in the window, and
// handled.
func (w window) perLetter(es []seen) float64 {
	return float64(w.bytes) / float64(len(transit(es, w.span)))
}

// congestion has links become slow under a load while shards move, and looks at what is sent over them
// and how soon all is well again; then a link is stalled in the middle of a move.
func congestion(ctx context.Context, r *scene.Run) {
	length, rate := cmp.Or(r.For, 55*time.Second), 1500.0
	if r.Short {
		length, rate = cmp.Or(r.For, 11*time.Second), 300
	}
	const nodes, asks = 4, 100.0
	set := settings{TTL: 10 * time.Second, Names: names{Shards: 32, Each: 8}, Size: 100}
	func() {
		c, links := newLinked(ctx, r, nodes, int(4*(rate+asks)*(length.Seconds()+60))+100_000, set)
		defer c.end()
		c.order(ctx, order{Do: doLoad, Rate: rate / nodes, Asks: asks / nodes}, patience)
		end := c.drainOn(ctx, 2*time.Second)
		scene.Check(machine.Pause(ctx, 3*time.Second))
		well := watched(ctx, links, machine.Shape{}, length*4/11)
		slow := watched(ctx, links, machine.Shape{Delay: farDelay, Jitter: farJitter}, length*3/11)
		healed := watched(ctx, links, machine.Shape{}, length*4/11)
		drained, undone := end()
		if drained == 0 {
			scene.Check(errNothing)
		}
		es, _, _ := c.settleMail(ctx, "", nil, func() {})
		r.Printf("   %d drains begun, %d not done in time", drained, undone)
		later := span{healed.from + 2*time.Second, healed.to}
		r.Spread("asks while well", answers(es, well.span))
		r.Spread("asks while slow", answers(es, slow.span))
		r.Spread("asks from 2 s after healing on", answers(es, later))
		reference := well.perLetter(es)
		r.Figure("bytes on the wire for each letter", "well %.0f, slow %.0f, healed %.0f", reference, slow.perLetter(es), healed.perLetter(es))
		r.AtMost("bytes for each letter while slow, of the reference", slow.perLetter(es)/reference, 1.5, "")
		r.AtMost("bytes for each letter after healing, of the reference", healed.perLetter(es)/reference, 1.5, "")
		r.AtMost("p99 of asks from 2 s after healing on, of the reference",
			float64(scene.Percentile(answers(es, later), 99))/float64(scene.Percentile(answers(es, well.span), 99)), 2, "")
	}()
	stalledMove(ctx, r, set)
}

// drainOn drains a node, has it take part again, and goes on to the next, with a planned move each time.
// What it returns ends that, and tells how many drains there were, and how many were not done when
// they were undone.
func (c *crew) drainOn(ctx context.Context, every time.Duration) (end func() (drained, undone int)) {
	moving, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	var drained, undone int
	go func() {
		done <- scene.Try(func() {
			for i := 0; moving.Err() == nil; i = (i + 1) % len(c.slots) {
				p, number := c.slots[i].current(), int(c.numbers.Add(1))
				scene.Check(p.Tell(order{Do: doDrain, Number: number}))
				if machine.Pause(moving, every) != nil {
					return
				}
				drained++
				if _, ok := p.Find(func(r said) bool { return r.Number == number }); !ok {
					undone++
				}
				scene.Check(p.Tell(order{Do: doUndrain}))
				_ = machine.Pause(moving, every) // it may be the end
			}
		})
	}()
	return func() (int, int) {
		stop()
		scene.Check(<-done)
		return drained, undone
	}
}

// swapAfter is how long a node takes part again before the other is drained: long enough for the
// coordinator to know, and too short for it to move shards for balance. A node that is drained while
// there is no other gives its shards up without a successor.
const swapAfter = 400 * time.Millisecond

// swap has the second node take all that the first one hosts. It returns what the drain said, once it
// has.
func (c *crew) swap(ctx context.Context) (drained <-chan said) {
	c.order(ctx, order{Do: doUndrain}, patience, 1)
	scene.Check(machine.Pause(ctx, swapAfter))
	out := make(chan said, 1)
	go func() {
		got, err := c.ask(ctx, order{Do: doDrain}, 2*patience, 0)
		if err != nil {
			got = []said{{Err: err.Error(), At: machine.Now()}}
		}
		out <- got[0]
	}()
	return out
}

// stalledMove has two nodes host and two send; what the old host sends to the new one waits from the
// moment on when the first shard has moved.
func stalledMove(ctx context.Context, r *scene.Run, set settings) {
	count, stall := 30_000, 8*time.Second
	if r.Short {
		count, stall = 3000, 2*time.Second
	}
	set.Hosts = 2
	c, links := newLinked(ctx, r, 4, 6*count+100_000, set)
	defer c.end()
	// All is on the first node, and will be on the second.
	c.order(ctx, order{Do: doDrain}, patience, 1)
	bytes := links.Bytes()
	c.order(ctx, order{Do: doLoad, Rate: 1500, Count: count / 2}, patience, 2, 3)
	scene.Check(machine.Pause(ctx, time.Second))
	at := machine.Now()
	drained := c.swap(ctx)
	c.until(ctx, patience, "a shard was handed off", func(v *view) (moved bool) {
		for _, h := range v.homes {
			moved = moved || h.node == 1 && h.at >= at
		}
		return moved
	})
	links.Link(0, 1).Set(machine.Shape{Stall: true})
	scene.Check(machine.Pause(ctx, stall))
	links.Link(0, 1).Heal()
	healed, d := machine.Now(), <-drained
	scene.Check(machine.Pause(ctx, at+time.Duration(count)*time.Second/3000-machine.Now()))
	es, j, _ := c.settleMail(ctx, "stalled: ", nil, func() {})
	last := healed
	for _, e := range only(es, handled) {
		last = max(last, e.at)
	}
	r.Printf("   one move of all shards, its link stalled for %v from the first one handed off; drained after %v %s; the last letter was handled %v after healing; %.0f bytes on the wire for each letter",
		stall, scene.Short(d.At-at), d.Err, scene.Short(last-healed), float64(links.Bytes()-bytes)/float64(j.asked))
}

// backlog has very many letters wait in one mailbox when its node is stopped.
func backlog(ctx context.Context, r *scene.Run) {
	runs, sizes := 3, []int{300_000, 10_000, 1_000_000}
	if r.Short {
		runs, sizes = 1, []int{20_000}
	}
	for _, n := range []names{{Shards: 1, Each: 1}, {Singletons: 1}} {
		took := map[int]time.Duration{}
		for _, size := range sizes {
			var each []time.Duration
			for range runs {
				each = append(each, backlogOnce(ctx, r, n, size))
			}
			took[size] = scene.Percentile(each, 50)
			r.Figure(fmt.Sprintf("%s: %d letters", n.text(0), size), "%v, %v each", scene.Short(took[size]), took[size]/time.Duration(size))
		}
		r.Within(fmt.Sprintf("%s: %d letters, from the stop to the last one handled", n.text(0), sizes[0]), took[sizes[0]], 10*time.Second)
		if len(sizes) > 2 {
			r.AtMost(fmt.Sprintf("%s: time for each of %d letters, of that for each of %d", n.text(0), sizes[2], sizes[1]),
				float64(took[sizes[2]])/float64(sizes[2])/(float64(took[sizes[1]])/float64(sizes[1])), backlogGrowth, "")
		}
	}
}

// backlogGrowth bounds how much longer each of very many letters takes.
const backlogGrowth = 1.5

// backlogOnce moves a mailbox once, and returns how long it took from the stop to the last letter.
func backlogOnce(ctx context.Context, r *scene.Run, n names, size int) time.Duration {
	c, _ := newLinked(ctx, r, 2, 4*size+10_000, settings{TTL: 10 * time.Second, Names: n, Size: 100, Buffer: 2*size + 10_000})
	defer c.end()
	c.order(ctx, order{Do: doHold}, patience, 0)
	c.order(ctx, order{Do: doBurst, Count: size}, 10*patience, 0)
	at := machine.Now()
	c.order(ctx, order{Do: doStop}, 2*patience, 0)
	es, j, _ := c.settleMail(ctx, "", nil, func() {})
	last, there := at, 0
	for _, e := range only(es, handled) {
		last = max(last, e.at)
		if e.node == 1 && e.seq > 0 {
			there++
		}
	}
	c.AtMost("letters out of order", float64(j.unordered), 0, "")
	c.AtMost("letters handled before the stop, or not at all", float64(size-there), float64(size/2), "")
	return last - at
}

// slowCase is one kind of link, and a load that is more than it carries.
type slowCase struct {
	name  string
	shape machine.Shape
	rate  float64 // letters a second
	large int     // bytes of the state of one account; 0: as all others
}

var slowCases = []slowCase{
	{"open", machine.Shape{}, 1000, 0}, // a reference: here every state must arrive
	{"narrow", machine.Shape{Rate: 50_000}, 1000, 0},
	{"far", machine.Shape{Rate: 1 << 20, Delay: farDelay, Jitter: farJitter}, 4000, 20 << 20},
}

// slowLink moves accounts with state over links that carry less than what is sent: two nodes host, the
// third sends.
func slowLink(ctx context.Context, r *scene.Run) {
	accounts, length, cases := 10_000, cmp.Or(r.For, 30*time.Second), slowCases
	if r.Short {
		accounts, length, cases = 400, cmp.Or(r.For, 6*time.Second), slowCases[1:2]
	}
	for _, s := range cases {
		s.play(ctx, r, accounts, length)
	}
}

func (s slowCase) play(ctx context.Context, r *scene.Run, accounts int, length time.Duration) {
	const shards, asks, lead, after = 40, 20.0, 3 * time.Second, 15 * time.Second
	c, links := newLinked(ctx, r, 3, int(4*(s.rate+asks)*(length+after).Seconds())+10*accounts+100_000, settings{TTL: 10 * time.Second,
		Names: names{Shards: shards, Each: accounts / shards}, Hosts: 2, Size: 400, State: 1 << 10, Large: s.large})
	defer c.end()
	c.order(ctx, order{Do: doDrain}, patience, 1)
	c.order(ctx, order{Do: doWake, Within: time.Second}, 2*patience, 2)
	before := c.weights(ctx)
	links.Shape(s.shape)
	c.order(ctx, order{Do: doLoad, Rate: s.rate, Asks: asks}, patience, 2)
	scene.Check(machine.Pause(ctx, lead))
	moved := machine.Now()
	drained := c.swap(ctx)
	scene.Check(machine.Pause(ctx, length-lead))
	links.Shape(machine.Shape{})
	healed := span{machine.Now() + 5*time.Second, machine.Now() + after}
	scene.Check(machine.Pause(ctx, after))
	es, j, givenUp := c.settleMail(ctx, s.name+": ", before, func() {
		select {
		case d := <-drained:
			r.Printf("   %s: the node was drained after %v %s", s.name, scene.Short(d.Took), d.Err)
		default:
			r.Printf("   %s: the node was not drained", s.name)
		}
		c.order(ctx, order{Do: doWake, Within: time.Second}, 4*patience, 2)
	})
	r.AtMost(s.name+": letters counted as given up beyond those that were", float64(givenUp-int64(j.lost)), 0, "")
	cold(r, s.name+": ", moved, es)
	r.Spread(s.name+": asks from 5 s after healing", answers(es, healed))
	r.Within(s.name+": p99 of asks from 5 s after healing on", scene.Percentile(answers(es, healed), 99), time.Second)
}

// cold holds the accounts that began without their state since a time to the events that told so.
func cold(r *scene.Run, what string, since time.Duration, es []seen) {
	type life struct {
		target uint16
		token  lease.Token
	}
	given := map[life]int{}
	starts, events, unnamed, warm := map[uint16]int{}, map[uint16]int{}, 0, 0
	for _, e := range es {
		if e.kind == gotState && e.at >= since {
			given[life{e.target, lease.Token(e.token)}]++
			warm++
		}
	}
	for _, e := range es {
		switch l := (life{e.target, lease.Token(e.token)}); {
		case e.at < since:
		case e.kind == began && given[l] > 0:
			given[l]--
		case e.kind == began:
			starts[e.target]++
		case e.kind == coldStart && e.seq > 0:
			unnamed += int(e.seq)
		case e.kind == coldStart:
			events[e.target]++
		}
	}
	missing, untold, made := 0, 0, 0
	for t, n := range starts {
		missing += n
		untold += max(0, n-events[t])
	}
	for t := range events {
		if starts[t] == 0 {
			made++
		}
	}
	r.Printf("   %s%d accounts began with their state, %d without it; cold starts of %d accounts were told by name, and %d by number", what, warm,
		missing, len(events), unnamed)
	r.AtMost(what+"states lost that no event told", float64(max(0, untold-unnamed)), 0, "")
	r.AtMost(what+"cold starts told of accounts that had their state", float64(made), 0, "")
}

const mebibyte = 1 << 20

func mib(bytes uint64) float64 { return float64(bytes) / mebibyte }

// only are the entries of a kind.
func only(es []seen, k kind) (out []seen) {
	for _, e := range es {
		if e.kind == k {
			out = append(out, e)
		}
	}
	return out
}

// answers are how long asks took that were sent in a span. One that was not answered is among them, as
// long as it was waited for.
func answers(es []seen, in ...span) (took []time.Duration) {
	open := map[letterKey]bool{}
	for _, e := range es {
		switch k := e.letter(); {
		case e.kind == asked && asks(e.sender) && within(in, e.at):
			open[k] = true
		case e.kind == answered && open[k]:
			delete(open, k)
			took = append(took, e.at-e.sent)
		}
	}
	for range open {
		took = append(took, 2*answerWithin)
	}
	return took
}

func within(spans []span, at time.Duration) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.has(at) })
}

// between are the spans of a whole that others leave.
func between(whole span, others []span) (out []span) {
	for _, o := range others {
		out = append(out, span{whole.from, o.from})
		whole.from = o.to
	}
	return append(out, whole)
}

// transit is how long letters took from sent to handled, of those that were sent in a span.
func transit(es []seen, in ...span) (took []time.Duration) {
	for _, e := range es {
		if e.kind == handled && e.seq > 0 && within(in, e.sent) {
			took = append(took, e.at-e.sent)
		}
	}
	return took
}

// gaps are, for every name that changed hosts in one of the spans, how long nothing was handled between the
// old host and the new one, as far as the load shows.
func gaps(es []seen, in []span) (all []time.Duration) {
	last := map[uint16]seen{}
	for _, e := range only(es, handled) { // in the order of time
		if was, ok := last[e.name]; ok && was.token != e.token && within(in, e.at) {
			all = append(all, e.at-was.at)
		}
		last[e.name] = e
	}
	return all
}

// silences are the longest time in each span without a letter of each node's that sends.
func silences(es []seen, in []span) (all []time.Duration) {
	got := only(es, handled)
	for _, s := range in {
		last, longest := map[int]time.Duration{}, map[int]time.Duration{}
		note := func(n int, at time.Duration) {
			if was, ok := last[n]; ok && at >= s.from {
				longest[n] = max(longest[n], at-was)
			}
			last[n] = at
		}
		for _, e := range got {
			if e.at >= s.to {
				break
			}
			note(nodeOf(e.sender), e.at)
		}
		for n := range last {
			note(n, s.to)
		}
		for _, d := range longest {
			all = append(all, d)
		}
	}
	return all
}

// judged judges what all nodes noted, but for the store's history: rules, and who sent what when. All of
// it is one calm, unless some are named.
func (c *crew) judged(change func(*evidence)) ([]seen, *judgement) {
	ev := c.collected()
	ev.whole = true
	change(&ev)
	j := judge(ev)
	c.violated(j)
	c.Printf("   %d passes under %d terms; %d letters sent, %d handled, %d lost, %d twice, %d out of order after a move that had said so; %d overruns",
		j.passes, j.terms, j.asked, j.handled, j.lost, j.twice, j.unordered, j.overruns)
	if j.passes == 0 {
		scene.Check(errNothing)
	}
	return ev.entries, j
}

// counted sums what nodes say that they gave up, those of remoting apart: it may be the same ones.
func counted(all []weight) (sum map[string]int64, givenUp int64) {
	sum = map[string]int64{}
	for _, w := range all {
		for k, n := range w.Counted {
			sum[k] += n
			if givesUp.MatchString(k) && !strings.Contains(k, ".") {
				givenUp += n
			}
		}
	}
	for k, n := range sum {
		if n == 0 {
			delete(sum, k)
		}
	}
	return sum, givenUp
}

// sample is what a process needed at a time.
type sample struct {
	at time.Duration
	weight
}

// series is all that one process told, in the order of time.
type series []sample

// fewest is how many samples a quarter must have.
const fewest = 3

// grown is a process that lived long enough: its medians of each figure in the quarters after its
// warm-up.
type grown struct {
	id      string
	medians [][4]float64
}

// judgeGrowth compares quarters of each process's series in a part of the run, and begins
// later with a process that was started later, warm after its start. A series that
// is shorter than half of that part says nothing.
func judgeGrowth(all map[string]series, in span, warm time.Duration) (judged []grown) {
	for _, id := range slices.Sorted(maps.Keys(all)) {
		s := all[id]
		from, to := in.from, min(in.to, s[len(s)-1].at+1)
		if s[0].at > in.from {
			from = s[0].at + warm
		}
		if to-from < (in.to-in.from)/2 {
			continue
		}
		g, enough := grown{id, make([][4]float64, len(figures))}, true
		for i := range 4 {
			in := span{from + (to-from)*time.Duration(i)/4, from + (to-from)*time.Duration(i+1)/4}
			for k, f := range figures {
				m, ok := s.median(in, f.of)
				g.medians[k][i], enough = m, enough && ok
			}
		}
		if enough {
			judged = append(judged, g)
		}
	}
	return judged
}

// median is that of a figure in a part of the run; false if there are too few samples.
func (s series) median(in span, figure func(weight) float64) (float64, bool) {
	var all []float64
	for _, x := range s {
		if in.has(x.at) {
			all = append(all, figure(x.weight))
		}
	}
	if len(all) < fewest {
		return 0, false
	}
	slices.Sort(all)
	return all[len(all)/2], true
}

// figures are what must not grow beyond a share and a rest of what it was.
var figures = []struct {
	what        string
	share, rest float64
	of          func(weight) float64
}{
	{"goroutines", 1.1, 20, func(w weight) float64 { return float64(w.Goroutines) }},
	{"MiB of heap", 1.15, 4, func(w weight) float64 { return mib(w.Heap) }},
	{"open files", 1.1, 20, func(w weight) float64 { return float64(w.Files) }},
	{"sessions", 1.1, 1, func(w weight) float64 { return float64(w.Sessions) }},
}

// holdGrowth prints the quarters, and holds the last to the first.
func holdGrowth(r *scene.Run, judged []grown) {
	for k, f := range figures {
		grow := 0
		for _, g := range judged {
			q := g.medians[k]
			r.Printf("   %-10s %-11s %.1f → %.1f → %.1f → %.1f", g.id, f.what, q[0], q[1], q[2], q[3])
			if !(q[3] <= f.share*q[0]+f.rest) {
				grow++
			}
		}
		r.AtMost(fmt.Sprintf("processes that end with more %s than %v × + %.0f", f.what, f.share, f.rest), float64(grow), 0, "")
	}
}
