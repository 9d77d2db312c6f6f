//go:build linux

package nodes

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
)

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
