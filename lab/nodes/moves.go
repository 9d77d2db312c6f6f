//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// moves is a scenario of planned moves under a load, and of kills between them. What is sent, and is not
// under way at a kill, must be handled once and in order, and asks be answered in time.
type moves struct {
	nodes   int // that host
	clients int // more, which host nothing, and send four fifths of the load
	set     settings
	rate    float64 // letters a second without an answer, of all nodes together
	asks    float64 // asks a second
	size    int     // how many moves; 0: as many as the length has room for
	length  time.Duration
	every   time.Duration // between the beginnings of moves
	deck    []move        // drawn from the seed, each card once before all come again
	within  time.Duration // asks are by Ask, with so long for an answer; 0: by actors, without end
	away    time.Duration // from the end of a process to the start of the next in its place

	gap  time.Duration // bound of p50 of silences at moves; 0: none
	busy time.Duration // in the middle the processors are busy for so long
	heap float64       // MiB, bound of each process at any time; 0: none
	grow bool          // nothing may grow
}

// move is one planned move. A process that ends notes what it needs before.
type move struct {
	what string
	do   func(x *moving, ctx context.Context)
}

var (
	handOver = move{"hand-over of the singletons", (*moving).handOver}
	restart  = move{"restart of a node", (*moving).restart}
	drain    = move{"drain of a node", (*moving).drain}
	inTurn   = move{"restart of a node, and kill of the next", (*moving).inTurn}
)

// moving is a run of moves.
type moving struct {
	moves
	*crew
	random *rand.Rand
	next   int // the node that is moved, or to, next
	spans  []span
	kills  []killed
	series map[string]series // of each process
}

// warmUp is how long a load lasts before the first move.
const warmUp = 2 * time.Second

// changeWithin is how long a move may take, or there are no more.
const changeWithin = 10 * time.Second

// shortBound is the share of the load that a busy machine may fail to send.
const shortBound = 0.1

func (m moves) play(ctx context.Context, r *scene.Run) {
	n := m.nodes + m.clients
	m.length = max(m.length, time.Duration(m.size)*m.every)
	m.set.Hosts = m.nodes
	c := newLocal(ctx, r, n, m.set)
	defer c.end()
	// Four entries for each letter, all on one node at the worst; the file is sparse.
	c.room = int(4*(m.rate+m.asks)*(m.length+6*changeWithin).Seconds()) + 100_000
	random := rand.New(rand.NewPCG(r.Seed, 1))
	x := &moving{moves: m, crew: c, random: random, series: map[string]series{}}
	c.up(ctx, upTo(n)...)
	if m.set.Follows {
		c.lead(ctx, 0)
	}
	c.answered(ctx, "all names answer all nodes", machine.Now(), 0, patience)
	began := machine.Now()
	for i := range n {
		x.send(ctx, i)
	}
	made, planned := x.all(ctx, began)
	x.weighed(ctx, c.all()...)
	end := machine.Now()
	c.quiet(ctx, 2*time.Second, patience)
	if made == 0 {
		scene.Check(errNothing)
	}
	r.AtMost("moves that did not come about", float64(planned-made), 0, "")
	x.judge(ctx, span{began, end})
}

// send has a node send its part of the load.
func (x *moving) send(ctx context.Context, i int) {
	share := 1 / float64(x.nodes)
	if x.clients > 0 {
		if share /= 5; i >= x.nodes {
			share = 0.8 / float64(x.clients)
		}
	}
	x.order(ctx, order{Do: doLoad, Rate: x.rate * share, Asks: x.asks * share, Within: x.within}, patience, i)
}

// all makes moves until the length has passed, or there were enough. It stops at the first that does
// not come about.
func (x *moving) all(ctx context.Context, began time.Duration) (made, planned int) {
	busy := make(chan error, 1)
	go func() { busy <- scene.Try(func() { x.beBusy(ctx, began+(x.length-x.busy)/2) }) }()
	var deck []move
	scene.Check(machine.Pause(ctx, warmUp))
	for at := machine.Now(); machine.Now()-began < x.length+warmUp && (x.size == 0 || made < x.size); at += x.every {
		if len(deck) == 0 {
			deck = slices.Clone(x.deck)
			x.random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		planned++
		from := machine.Now()
		err := scene.Try(func() { deck[0].do(x, ctx) })
		x.spans = append(x.spans, span{from, machine.Now()})
		if errors.Is(err, machine.ErrNever) {
			x.Printf("   %s: %v", deck[0].what, err)
			break
		}
		scene.Check(err, deck[0].what)
		made++
		deck = deck[1:]
		for next := at + x.every; ; {
			if x.grow {
				x.weighed(ctx, x.crew.all()...)
			}
			scene.Check(machine.Pause(ctx, min(next-machine.Now(), x.length/40)))
			if machine.Now() >= next {
				break
			}
		}
	}
	scene.Check(<-busy)
	return made, planned
}

// beBusy has the machine busy from a time on.
func (x *moving) beBusy(ctx context.Context, from time.Duration) {
	if x.busy == 0 {
		return
	}
	scene.Check(machine.Pause(ctx, from-machine.Now()))
	end := machine.Burners(4)
	scene.Check(errors.Join(machine.Pause(ctx, x.busy), end()))
}

// weighed takes what nodes need.
func (x *moving) weighed(ctx context.Context, nodes ...int) {
	for k, w := range x.weights(ctx, nodes...) {
		id := fmt.Sprintf("node-%d.%d", nodes[k], x.slots[nodes[k]].life)
		x.series[id] = append(x.series[id], sample{machine.Now(), w})
	}
}

// handOver makes another node the leader, and waits until it has handled something: only then the
// next change can be told from this one.
func (x *moving) handOver(ctx context.Context) {
	x.next = (x.next + 1) % x.nodes
	to, at := x.next, machine.Now()
	x.lead(ctx, to)
	x.until(ctx, changeWithin, "a letter at the next host", func(v *view) (is bool) {
		for name := range x.settings.Names.Singletons {
			is = is || v.heard[[2]int{to, name}] >= at
		}
		return is
	})
}

// restart has a node leave, starts another process in its place, and waits until that has its part. A
// node that leads hands that over first.
func (x *moving) restart(ctx context.Context) {
	i := x.next
	if x.set.Follows {
		if i = 0; x.next == 0 {
			x.handOver(ctx)
		}
	} else {
		x.next = (x.next + 1) % x.nodes
	}
	x.order(ctx, order{Do: doQuiet}, patience, i)
	x.weighed(ctx, i)
	scene.Check(x.leaveBy(x.slots[i], leaveBound))
	x.again(ctx, i)
}

// again starts another process in the place of one that has ended, and waits until it has its part.
func (x *moving) again(ctx context.Context, i int) {
	scene.Check(machine.Pause(ctx, x.away))
	x.up(ctx, i)
	x.send(ctx, i)
	x.settled(ctx, patience, 0, upTo(x.nodes)...)
}

// inTurn restarts a node as planned, and kills the next (kill -9) and starts it again.
func (x *moving) inTurn(ctx context.Context) {
	x.restart(ctx)
	scene.Check(machine.Pause(ctx, 2*underWay)) // what was sent during the restart is judged as planned
	i := x.next
	x.next = (i + 1) % x.nodes
	x.kills = append(x.kills, killed{machine.Now(), i, x.slots[i].life})
	scene.Check(x.kill(x.slots[i]))
	x.again(ctx, i)
}

// drain has a node give up its shards, and take its part again.
func (x *moving) drain(ctx context.Context) {
	i := x.random.IntN(x.nodes)
	x.order(ctx, order{Do: doDrain}, patience, i)
	scene.Check(machine.Pause(ctx, x.every/4))
	x.order(ctx, order{Do: doUndrain}, patience, i)
	x.settled(ctx, patience, 0, upTo(x.nodes)...)
}

func (x *moving) judge(ctx context.Context, run span) {
	var last []weight
	for _, s := range x.series {
		last = append(last, s[len(s)-1].weight)
	}
	sum, givenUp := counted(last)
	es, j := x.judged(func(ev *evidence) {
		var kills []span
		for _, k := range x.kills {
			kills = append(kills, span{k.at - underWay, k.at + underWay})
		}
		ev.calms, ev.apart = between(span{0, run.to + time.Hour}, kills), x.within > 0
		ev.loose, ev.counted = x.busy > 0, givenUp // a machine that is busy may fill a buffer
	})
	took := (run.to - run.from).Seconds()
	x.Printf("   %d moves in %.0f s, %.0f letters a second; counted by the product: %v", len(x.spans), took, float64(j.asked)/took, sum)
	x.AtMost("share of the load that was not sent", 1-float64(j.asked)/((x.rate+x.asks)*took), shortBound, "")
	if x.within > 0 {
		x.ends(es, j)
		return
	}
	inTime := func(d time.Duration) bool { return d <= answerWithin }
	late := slices.DeleteFunc(answers(es, run), inTime)
	x.AtMost(fmt.Sprintf("asks not answered within %v", answerWithin), float64(len(late)), 0, "")
	calm := between(run, x.spans)
	x.Spread("an ask's answer, nothing moving", answers(es, calm...))
	x.Spread("an ask's answer, during a move", answers(es, x.spans...))
	x.Spread("a letter's way, nothing moving", transit(es, calm...))
	x.Spread("a letter's way, during a move", transit(es, x.spans...))
	periods := slices.Clone(x.spans) // from each move to the next
	for i := range periods {
		if periods[i].to = run.to; i+1 < len(periods) {
			periods[i].to = periods[i+1].from
		}
	}
	silent := gaps(es, periods)
	x.Spread("old host's last to new host's first", silent)
	if x.gap > 0 {
		quiet := silences(es, periods)
		x.Spread("longest silence, by sender's node", quiet)
		x.Within("p50 from old host's last to new host's first", scene.Percentile(silent, 50), x.gap)
		x.Within("p50 of the longest silence of a sender's node", scene.Percentile(quiet, 50), x.gap)
	}
	if x.heap > 0 {
		x.holdHeap("", x.heap)
	}
	if !x.grow {
		return
	}
	var passivated int64
	for _, w := range last {
		passivated += w.Passivated
	}
	grown := judgeGrowth(x.series, span{run.from + x.length/10, run.to}, x.length/10)
	holdGrowth(x.Run, grown)
	if passivated == 0 || len(grown) < x.nodes-1 {
		scene.Check(fmt.Errorf("%w: %d accounts were stopped, and %d processes lived long enough", errNothing, passivated, len(grown)))
	}
	scene.Check(machine.Pause(ctx, 2*x.set.Idle))
	left := 0
	for _, w := range x.weights(ctx) {
		left += w.Entries + w.Active
	}
	x.AtMost("accounts kept or running after the load", float64(left), 0, "")
}

// killed is a life of a node that was killed, and when.
type killed struct {
	at         time.Duration
	node, life int
}

// underWay is how long before a kill, and after it, what is sent may be lost by it.
const underWay = time.Second

// endWithin bounds how long an ask on which a kill bears takes: from when it was asked, from the kill, or, if its name
// was hosted by who was killed, from when it is hosted again, whichever is the latest. On one machine a link is known to
// have broken as soon as a process is dead.
const endWithin = time.Second

// killed reports whether the life that noted e was killed.
func (x *moving) killed(e seen) bool {
	return slices.ContainsFunc(x.kills, func(d killed) bool { return d.node == e.node && d.life == e.life })
}

// ends judges how asks ended. What was lost, doubled or out of order is judged before, but for what was under way at a kill.
func (x *moving) ends(es []seen, j *judgement) {
	v, kill, next := newView(), time.Duration(0), 0
	open := map[letterKey]seen{}
	orphans := map[uint16]time.Duration{} // names of who was killed last: when hosted again, or 0
	var calm, struck []time.Duration      // of asks on which no kill bears, and of others
	var hung []seen
	failures, died, lost := 0, 0, 0
	for _, e := range es { // in the order of time
		for ; next < len(x.kills) && x.kills[next].at <= e.at; next++ {
			d := x.kills[next]
			for k, o := range open { // the next kill excuses no ask that is late already
				if x.killed(o) {
					continue
				}
				if took := d.at - max(o.at, kill, orphans[o.name]); asks(k.sender) && took > answerWithin {
					calm = append(calm, took)
				}
			}
			kill = d.at
			clear(orphans)
			for name, h := range v.homes {
				if h.hosted && h.node == d.node && h.life == d.life {
					orphans[name] = 0
				}
			}
			v.died(d.node, d.life)
		}
		v.take(e)
		switch k := e.letter(); e.kind {
		case asked:
			open[k] = e
		case handled, overran:
			if !asks(e.sender) {
				delete(open, k)
			}
		case hosted, began: // which tells of it sooner, if there is something to do
			if at, is := orphans[e.name]; is && at == 0 {
				orphans[e.name] = e.at
			}
		case failed, answered:
			delete(open, k)
			if e.kind == failed {
				failures++
			}
			at, orphan := orphans[e.name]
			switch from := max(kill, at); {
			case e.at-e.sent >= x.within:
				hung = append(hung, e)
			case e.sent < from || orphan && at == 0:
				struck = append(struck, e.at-max(e.sent, from))
			default:
				calm = append(calm, e.at-e.sent)
			}
		}
	}
	for k, e := range open {
		switch {
		case !asks(k.sender):
			lost++
		case x.killed(e):
			died++
		default:
			hung = append(hung, e)
		}
	}
	x.Printf("   %d kills: %d letters were never handled, %d asks ended with an error, %d with their asker; %d calms, in %d a lease ran out, %d breaches excused by that",
		len(x.kills), lost, failures, died, j.calms, j.unquiet, j.excused)
	x.Spread("an ask's end, planned moves only", calm)
	x.Spread("… after a kill, or from the next host on", struck)
	x.AtMost("asks not under way at a kill, without an answer", float64(j.calmUnanswered), 0, "")
	x.AtMost("asks that ended by their own time, or never", float64(len(hung)), 0, "")
	for _, e := range hung[:min(most, len(hung))] {
		x.Printf("    %v", e)
	}
	x.Within("longest end of an ask, planned moves only", scene.Percentile(calm, 100), answerWithin)
	x.Within("longest end of an ask, after a kill, or from the next host on", scene.Percentile(struck, 100), endWithin)
}

// holdHeap holds what was on the heap of each process at any time to a bound.
func (c *crew) holdHeap(what string, most float64) {
	var heap, resident uint64
	for _, s := range c.slots {
		if p := s.current(); p != nil {
			for _, r := range p.Said() {
				heap, resident = max(heap, r.Heap), max(resident, r.RSS)
			}
		}
	}
	c.Figure(what+"resident memory of a process, at most", "%.0f MiB", mib(resident))
	c.AtMost(what+"heap of a process at any time", mib(heap), most, " MiB")
}
