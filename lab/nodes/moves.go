//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
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

// deaths is a scenario whose nodes are killed and replaced. After each kill every name must answer
// every survivor in time, and none may be taken over before the TTL can have ended.
type deaths struct {
	nodes  int
	names  names
	ttl    time.Duration
	asks   float64 // a second, of all nodes together
	kills  int
	stops  bool // every other one is a stop (SIGSTOP) for 3 TTLs
	target role
	back   time.Duration // bound of the answers after a kill, beside the TTL

	start time.Duration                            // bound of the answers after the start; 0: none
	idle  *needs                                   // bounds of what nodes need while nothing is asked; nil: none
	then  func(context.Context, *crew, *rand.Rand) // what is done besides, with one more node
}

// role is what a node is chosen by.
type role int

const (
	anyNode     role = iota
	host             // of the first name
	coordinator      // of the shards
	busiest          // hosts the most names
)

// needs bounds what nodes need, beside what they need before they host anything.
type needs struct {
	heap       float64 // MiB of each node
	goroutines float64 // of each node
	requests   float64 // to etcd, a second, of all nodes
}

// pick chooses a node that runs.
func (c *crew) pick(by role, random *rand.Rand) (node int) {
	all := c.all()
	has, _ := c.hosts()
	c.look(func(v *view) {
		switch by {
		case anyNode:
			node = all[random.IntN(len(all))]
		case host:
			node = v.homes[0].node
		case coordinator:
			node = v.boss.node
		case busiest:
			node = slices.Index(has, slices.Max(has))
		}
	})
	return node
}

// sweepWithin is an ask's deadline: what was sent to a node that died is not
// answered, and asked again.
const sweepWithin = 400 * time.Millisecond

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func (d deaths) play(ctx context.Context, r *scene.Run) {
	random := rand.New(rand.NewPCG(r.Seed, 0))
	c := newLocal(ctx, r, d.nodes+1, settings{TTL: d.ttl, Names: d.names})
	defer c.end()
	c.room = 200*d.names.count() + int(3*(d.asks+1000)*(120+float64(d.kills)*(60+d.ttl.Seconds())))
	began := machine.Now()
	c.up(ctx, upTo(d.nodes)...)
	c.answered(ctx, "start until all names answered every node", began, d.start, 10*patience)
	if err := scene.Try(func() { c.settled(ctx, patience, 0, c.all()...) }); d.names.Shards > 0 {
		scene.Check(err)
	}
	if d.idle != nil {
		d.idle.hold(ctx, c)
	}
	if d.asks > 0 {
		c.order(ctx, order{Do: doLoad, Asks: d.asks / float64(d.nodes)}, patience)
	}
	var times [2]recoveries // of kills, and of stops
	for n := range d.kills {
		scene.Check(machine.Pause(ctx, d.ttl/2+time.Duration(random.Int64N(int64(d.ttl/2)))))
		kind := 0
		if d.stops {
			kind = n % 2
		}
		d.strike(ctx, c, c.pick(d.target, random), kind == 1, &times[kind])
	}
	if d.then != nil {
		d.then(ctx, c, random)
	}
	for i, what := range []string{"kill", "stop"} {
		if t := times[i]; len(t.back) > 0 {
			r.Spread(what+" to all names hosted", t.hosted)
			r.Spread(what+" to all answers at every survivor", t.back)
			r.Spread(what+" to all answers at the new process", t.healed)
			r.Within("longest from a "+what+" to all answers at every survivor", slices.Max(t.back), d.ttl+d.back)
		}
	}
	c.judged(func(*evidence) {})
}

// answered has nodes ask every name until it answers, all of them if none is named. bound is for the time
// since then; 0 is none.
func (c *crew) answered(ctx context.Context, what string, since, bound, within time.Duration, nodes ...int) {
	got := c.order(ctx, order{Do: doSweep, Within: sweepWithin}, within, nodes...)
	at := slices.MaxFunc(got, func(a, b said) int { return int(a.At - b.At) }).At
	if bound > 0 {
		c.Within(what, at-since, bound)
	} else {
		c.Figure(what, "%v", scene.Short(at-since))
	}
}

// recoveries are the times after kills.
type recoveries struct{ hosted, back, healed []time.Duration }

// strike ends a node's process and starts another in its place, or stops it for 3 TTLs, and waits until all
// names answer all nodes.
func (d deaths) strike(ctx context.Context, c *crew, i int, stop bool, times *recoveries) {
	has, _ := c.hosts()
	boss, old := "", uint64(0)
	var had []uint16
	c.look(func(v *view) {
		if v.boss.hosted && v.boss.node == i {
			boss, old = ", which coordinated,", v.boss.token
		}
		for name, h := range v.homes {
			if h.hosted && h.node == i {
				had = append(had, name)
			}
		}
	})
	at, p, what := machine.Now(), c.slots[i].current(), "killed"
	if stop {
		what = "stopped"
		scene.Check(p.Signal(syscall.SIGSTOP))
	} else {
		scene.Check(c.kill(c.slots[i]))
	}
	swept := make(chan error, 1)
	var got []said
	go func() {
		var err error
		got, err = c.ask(ctx, order{Do: doSweep, Within: sweepWithin}, 5*d.ttl+patience, c.all(i)...)
		swept <- err
	}()
	started := scene.Try(func() {
		if stop {
			scene.Check(errors.Join(machine.Pause(ctx, 3*d.ttl), p.Signal(syscall.SIGCONT)))
			return
		}
		c.up(ctx, i)
		if d.asks > 0 {
			c.order(ctx, order{Do: doLoad, Asks: d.asks / float64(d.nodes)}, patience, i)
		}
	})
	scene.Check(errors.Join(started, <-swept), fmt.Sprintf("node-%d was %s", i, what))
	back := slices.MaxFunc(got, func(a, b said) int { return int(a.At - b.At) }).At - at
	again := c.order(ctx, order{Do: doSweep, Within: sweepWithin}, 5*d.ttl+patience, i)
	times.back, times.healed = append(times.back, back), append(times.healed, again[0].At-at)
	if _, since := c.hosts(); since > at {
		times.hosted = append(times.hosted, since-at)
	}
	c.until(ctx, patience, "another coordinates", func(v *view) bool {
		return boss == "" || v.boss.token > old
	})
	c.look(func(v *view) {
		for _, name := range had { // nothing but the end of the TTL tells of that
			if h := v.homes[name]; h.at > at && h.at < at+d.ttl/3 {
				c.Unsafe("%s was taken over %v after its host was %s", d.names.text(int(name)), h.at-at, what)
			}
		}
	})
	c.Printf("   node-%d%s was %s, which hosted %d: all answer the survivors after %v", i, boss, what, has[i], scene.Short(back))
	if c.settings.Names.Shards > 0 {
		c.settled(ctx, patience, 0, c.all()...)
	}
}

// etcdMethods are what a node may ask etcd for.
var etcdMethods = []string{"Range", "Put", "DeleteRange", "Txn", "Watch", "LeaseGrant", "LeaseRevoke", "LeaseKeepAlive", "LeaseTimeToLive"}

// hold takes what nodes need while nothing is asked, and what etcd is asked for.
func (n needs) hold(ctx context.Context, c *crew) {
	scene.Check(machine.Pause(ctx, c.settings.TTL)) // what the start left behind goes
	before := c.received(ctx)
	was := c.weights(ctx)
	began := machine.Now()
	scene.Check(machine.Pause(ctx, 2*c.settings.TTL))
	after := c.received(ctx)
	took := (machine.Now() - began).Seconds()
	sum, text := 0.0, ""
	for i, method := range etcdMethods {
		sum += (after[i] - before[i]) / took
		text += fmt.Sprintf(" %s %.2f", method, (after[i]-before[i])/took)
	}
	c.Printf("   idle, requests to etcd a second:%s", text)
	c.AtMost("requests to etcd a second while all is idle", sum, n.requests, "")
	is := c.weights(ctx)
	for i, w := range is {
		up := scene.Must(c.awaitUp(ctx, c.all()[i]))
		c.Printf("   node-%d hosts %d: heap %.1f MiB, resident %.1f MiB, %d goroutines, %.2f %% of a processor", i, w.Hosted,
			mib(w.Heap), mib(w.RSS), w.Goroutines, 100*(w.CPU-was[i].CPU).Seconds()/took)
		c.AtMost(fmt.Sprintf("node-%d, heap of all it hosts", i), mib(w.Heap)-mib(up.Weight.Heap), n.heap, " MiB")
		if n.goroutines > 0 {
			c.AtMost(fmt.Sprintf("node-%d, goroutines of all it hosts", i), float64(w.Goroutines-up.Weight.Goroutines), n.goroutines, "")
		}
	}
}

// onEtcd is the servers of a scenario that looks into etcd.
func (c *crew) onEtcd() etcdServers {
	servers, ok := c.servers.(etcdServers)
	if !ok {
		scene.Check(errors.New("this scenario looks into etcd, and has another store"))
	}
	return servers
}

// received is how many messages of each kind etcd has had.
func (c *crew) received(ctx context.Context) (out []float64) {
	got := scene.Must(c.onEtcd().Members()[0].Metrics(ctx))
	if got.Sum("grpc_server_msg_received_total") == 0 {
		scene.Check(errors.New("the server counts no requests: another name for the metric?"))
	}
	for _, method := range etcdMethods {
		out = append(out, got.Sum("grpc_server_msg_received_total", fmt.Sprintf("grpc_method=%q", method)))
	}
	return out
}

// Bounds of shards.
const (
	assignBound = 5 * time.Second
	bossBound   = 2 * time.Second
	stillFor    = 2 * time.Second // nothing must have moved for so long before the next thing is done
)

// succession has the node that coordinates leave, and come back, and then one more join.
func succession(ctx context.Context, c *crew, random *rand.Rand) {
	nodes := c.all()
	c.settled(ctx, patience, stillFor, nodes...)
	leaves, old, at := c.pick(coordinator, random), uint64(0), machine.Now()
	c.look(func(v *view) { old = v.boss.token })
	scene.Check(c.leaveBy(c.slots[leaves], patience))
	left := machine.Now()
	var boss home
	c.until(ctx, patience, "another node coordinates", func(v *view) bool {
		boss = v.boss
		return boss.token > old && boss.node != leaves
	})
	last := at
	c.slots[leaves].mu.Lock()
	for _, e := range only(c.slots[leaves].past, unhosted) {
		last = max(last, e.at)
	}
	c.slots[leaves].mu.Unlock()
	c.Printf("   node-%d, which coordinated, was told to leave: all its shards are handed over after %v, node-%d coordinates after %v, it has left after %v",
		leaves, scene.Short(last-at), boss.node, scene.Short(boss.at-at), scene.Short(left-at))
	c.Within("last hand-over of the leaving coordinator's node until another coordinates", max(0, boss.at-last), bossBound)
	c.settled(ctx, patience, stillFor, c.all()...)
	c.up(ctx, leaves)
	c.settled(ctx, 2*patience, stillFor, nodes...)
	before, moved, one := 0, 0, len(nodes)
	c.look(func(v *view) { before = v.began })
	at = machine.Now()
	c.up(ctx, one)
	settled := c.settled(ctx, 2*patience, 2*stillFor, append(nodes, one)...)
	c.look(func(v *view) { moved = v.began - before })
	c.Figure("a node joined: until it has its part", "%v", scene.Short(settled-at))
	c.AtMost("shards that moved when a node joined", float64(moved), float64((c.settings.Names.Shards+one)/(one+1)+1), "")
	c.answered(ctx, "all shards answer all nodes", machine.Now(), 0, 2*patience)
}
