//go:build linux

package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// options are the sizes of a torture.
type options struct {
	length time.Duration
	nodes  int // besides the spare one that joins and leaves
	ttl    time.Duration
	rate   float64 // asks a second, of each node
	storm  time.Duration
	faults int // of a storm, at most
	wires  wiring
	more   []*faultKind // drawn besides
	broken bool         // the nodes are, so that the oracle has something to find
}

// tortureScenario breaks nodes and their servers by faults that are drawn; over proxies, which also
// delay, throttle and stall what is sent.
func tortureScenario(wires wiring) func(context.Context, *scene.Run) {
	return func(ctx context.Context, r *scene.Run) {
		ttl := cmp.Or(kindOf(cmp.Or(r.Store, overEtcd.Name)).TTL, 2*time.Second)
		o := options{length: cmp.Or(r.For, 5*time.Minute), nodes: 4, ttl: ttl, rate: 25, storm: 6 * ttl, faults: 16, wires: wires}
		if r.Short {
			o.length, o.nodes, o.rate, o.storm, o.faults = cmp.Or(r.For, time.Second), 3, 20, 2*ttl, 5
		}
		play(ctx, r, o)
	}
}

// play is one torture, from the start of the store to the report.
func play(ctx context.Context, r *scene.Run, o options) *judgement {
	t := newTorture(ctx, r, o)
	defer t.end()
	t.run(ctx)
	return t.report(ctx)
}

// The bounds of I7, beyond the TTL. A name's is for its lease to end late, to be
// acquired, and for nodes to find the store and each other again. A node's is longer: what
// TCP has not delivered over a link that was cut it tries again after a pause that has
// doubled each time.
const (
	nameBound = 5 * time.Second
	nodeBound = 20 * time.Second
)

// idle is how long an account may have nothing to do: about as long as the mean time
// between two asks of it, so that many are stopped and started again.
const idle = 300 * time.Millisecond

// leaveBound is how long a node that is told to leave may take.
const leaveBound = 25 * time.Second

// done is a fault that was done.
type done struct {
	fault
	from, to time.Duration
}

// torture is a run.
type torture struct {
	options
	*crew
	plan  *plan
	began time.Duration

	storeOp sync.Mutex // one trouble of the store at a time

	mu       sync.Mutex // of these
	done     []done
	evils    []violation // that this process saw by itself
	slowGone int         // nodes told to leave in a storm that did not, or not well

	calms    []span
	heals    []healing
	nodeBack []time.Duration // until a node had an answer of every name
	ended    time.Duration
}

// newTorture starts the store's servers and the nodes.
func newTorture(ctx context.Context, r *scene.Run, o options) *torture {
	t := &torture{options: o}
	set := settings{TTL: o.ttl, Names: names{Singletons: 2, Shards: 16, Each: 2}, Broken: o.broken,
		Idle: idle, Remember: true, State: stateSize, Writes: true}
	t.crew = newCrew(ctx, r, o.nodes+1, 3, o.wires, set)
	t.began = machine.Now()
	t.plan = newPlan(o, r.Seed, t.net.shapes, len(t.servers.Addresses()) > 0, t.servers.Troubles())
	t.Printf("   %d nodes and a spare one, TTL %v, %d singletons, %d shards, %d accounts, %.0f asks a second of each node",
		o.nodes, o.ttl, set.Names.Singletons, set.Names.Shards, set.Names.Shards*set.Names.Each, o.rate)
	return t
}

// start starts a process for a node, which asks.
func (t *torture) start(i int) {
	if t.slots[i].current() == nil {
		t.crew.start(i)
		scene.Check(t.slots[i].current().Tell(order{Do: doLoad, Asks: t.rate})) // once it is up
	}
}

// say prints with the time since the run began.
func (t *torture) say(format string, args ...any) {
	t.Printf("%9.3f  "+format, append([]any{(machine.Now() - t.began).Seconds()}, args...)...)
}

// evil is a violation that needs no journal.
func (t *torture) evil(rule string, err error) {
	t.say("VIOLATION %s: %v", rule, err)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.evils = append(t.evils, violation{rule: rule, text: err.Error()})
}

// run tortures until the time has passed.
func (t *torture) run(ctx context.Context) {
	t.begin(ctx)
	for n := 1; n == 1 || machine.Now()-t.began < t.length; n++ {
		r := t.plan.next()
		t.weather(ctx, n, r.Storm)
		t.heal(ctx, n)
		t.calm(ctx, n, r.Calm)
	}
	t.ended = machine.Now()
}

// begin starts the nodes, and waits until every name has answered each.
func (t *torture) begin(ctx context.Context) {
	for i := range t.nodes {
		t.start(i)
	}
	for i := range t.nodes {
		scene.Must(t.awaitUp(ctx, i))
	}
	t.heal(ctx, 0)
}

// weather is a storm: it returns when all its faults were undone.
func (t *torture) weather(ctx context.Context, n int, storm []fault) {
	t.say("storm %d: %d faults", n, len(storm))
	began := machine.Now()
	errs := make([]error, len(storm))
	var all sync.WaitGroup
	for i, f := range storm {
		all.Go(func() {
			errs[i] = scene.Try(func() {
				scene.Check(machine.Pause(ctx, began+f.After-machine.Now()))
				t.inflict(ctx, f)
			})
		})
	}
	all.Wait()
	for _, s := range t.slots {
		if err := s.check(); err != nil {
			t.evil(ruleProcess, err)
			t.gone(s)
			if s.index < t.nodes {
				t.start(s.index)
			}
		}
	}
	scene.Check(errors.Join(errs...))
}

// heal waits until every node runs, and has had an answer of every name.
func (t *torture) heal(ctx context.Context, n int) {
	at := machine.Now()
	if n > 0 { // the first time nothing has been healed
		t.heals = append(t.heals, healing{n, at})
	}
	var nodes []int
	var since []time.Duration
	for i := range t.nodes {
		if up, err := t.awaitUp(ctx, i); err != nil {
			t.evil(ruleI7, err)
		} else {
			nodes, since = append(nodes, i), append(since, max(at, up.At))
		}
	}
	got, err := t.ask(ctx, order{Do: doSweep, Within: askWithin}, patience+10*time.Second, nodes...)
	scene.Check(ctx.Err())
	if err != nil {
		t.evil(ruleI7, err)
	}
	for k, r := range got {
		if took := r.At - since[k]; n > 0 && r.At > 0 {
			t.nodeBack = append(t.nodeBack, took)
			if took > t.ttl+nodeBound {
				t.evil(ruleI7, fmt.Errorf("node-%d had an answer of every name only %v after storm %d", nodes[k], took, n))
			}
		}
	}
	t.say("storm %d is over: every name has answered every node after %v", n, (machine.Now() - at).Round(time.Millisecond))
}

// askWithin bounds each ask of a sweep, which is repeated.
const askWithin = 700 * time.Millisecond

// calm does planned moves, with no fault before or after it for a while.
func (t *torture) calm(ctx context.Context, n int, moves []fault) {
	scene.Check(machine.Pause(ctx, calmPause)) // answers that are under way have come
	from := machine.Now()
	for _, f := range moves {
		t.inflict(ctx, f)
		scene.Check(machine.Pause(ctx, 2*time.Second)) // shards move to who has come
	}
	t.calms = append(t.calms, span{from, machine.Now()})
	scene.Check(machine.Pause(ctx, calmAnswer))
}

// bring is all evidence, with what was ever written to the store, by its own history.
func (t *torture) bring(ctx context.Context) evidence {
	ev := t.collected()
	ev.calms, ev.heals, ev.back, ev.History = t.calms, t.heals, nameBound, t.servers.History(ctx)
	return ev
}

// errNothing: a run that was too quiet, or too short-lived, to say anything.
var errNothing = errors.New("nothing was judged")

// report judges everything and prints it.
func (t *torture) report(ctx context.Context) *judgement {
	ev := t.bring(ctx)
	j := judge(ev)
	j.violations = append(j.violations, t.evils...)

	times := map[string][]time.Duration{}
	planned := 0
	for _, d := range t.done {
		times[d.kind.name] = append(times[d.kind.name], d.to-d.from)
		if d.kind.planned {
			planned++
		}
	}
	t.Printf("   %d faults and %d planned moves in %d storms and calms, %v:", len(t.done)-planned, planned, len(t.heals), (t.ended - t.began).Round(time.Second))
	for _, name := range slices.Sorted(maps.Keys(times)) {
		t.Spread(name, times[name])
	}
	t.Printf("journals: %d entries: %d passes under %d terms, %d sessions confirmed, %d losses under work that went on",
		len(ev.entries), j.passes, j.terms, j.confirmed, j.moments)
	t.Printf("overruns, counted apart: %d asks handled after the lease had ended", j.overruns)
	t.Printf("leases that the store ended though it had just confirmed them, and others had while their holders believed, counted apart: %d", len(j.revoked))
	for _, r := range j.revoked {
		t.Printf("  %s: for %v\n    %v\n    %v", r.name, r.last.at-r.next.at, r.last, r.next)
	}
	t.Printf("fenced journal: %d writes in the store's history; by the writers' count %d accepted, %d refused as stale", j.records, j.wrote, j.refused)
	t.Printf("asks: %d sent, %d handled (%d of them again), %d answered", j.asked, j.handled, j.twice, j.answered)
	t.Printf("states of accounts: %d left for the next host, %d taken up", j.left, j.got)
	t.Printf("in calm: %d asks, %d handled without an answer at the asker, %d out of order or twice after a move that had said so", j.calm, j.calmUnanswered, j.unordered)
	t.Printf("calms: %d, in %d of which a lease ran out under work that went on; lost, doubled or overtaken in these, and excused: %d", j.calms, j.unquiet, j.excused)
	t.Printf("told to leave in a storm, and had not left within %v, or not in order: %d", leaveBound, t.slowGone)
	t.Spread("after a storm, each name's first answer", j.back)
	t.Spread("after a storm, all names' answers at a node", t.nodeBack)
	unheld := ev.Changes != nil && j.changes == 0
	if j.passes == 0 || j.calm == 0 || j.records == 0 || unheld || len(j.back) == 0 {
		scene.Check(errNothing)
	}
	t.violated(j)
	return j
}

// violated reports the violations of a judgement, with the lines that show them.
func (c *crew) violated(j *judgement) {
	for _, v := range j.violations {
		word := "SAFETY"
		if v.slow() {
			word = "late"
		}
		c.Violation("%s: %s: %s", word, v.rule, v.text)
		for _, l := range v.lines {
			c.Printf("    %v", l)
		}
	}
	for rule, n := range j.more {
		c.Printf("%s: %d more", rule, n)
	}
}

// Trouble is a fault of the store's servers.
type Trouble struct {
	// Name is what it is called in the report: "kill -9 of etcd's leader".
	Name string
	// Weight is how often it is drawn, from 1 on: kill -9 of a node has 5.
	Weight int
	// Least and Most bound how long it lasts, in TTLs: above 0, and at most 10.
	Least, Most float64
	// Do does it: of pick it may make a choice, such as of the server. It returns what that was,
	// for the report, and what undoes it, which returns when the servers can be used again.
	Do func(ctx context.Context, pick uint64) (what string, end undo, err error)
}

// undo ends a trouble.
type undo = func(context.Context) error

// what a fault is done to: no other is drawn for it meanwhile.
type what int

const (
	aNode what = iota // or the spare one
	aWay              // of a node to the store and back
	aLink             // of one node to another
	theCPU
	theStore
)

// faultKind is what is done to the cluster.
type faultKind struct {
	name        string
	weight      int // how often it is drawn among others
	on          what
	least, most float64                                           // in TTLs
	shape       func(rng *rand.Rand) machine.Shape                // what happens to a link, or to a way
	ends        func(s machine.Shape) (there, back machine.Shape) // where; nil: there alone
	do          func(t *torture, ctx context.Context, f fault)    // nil: the shape is all
	planned     bool                                              // part of a node's life: it loses nothing
	trouble     *Trouble
}

// fault is one of a plan.
type fault struct {
	kind  *faultKind
	Node  int           // of the cluster
	Other int           // the second node of a link
	After time.Duration // from the beginning of its storm
	For   time.Duration // until it is undone
	Shape machine.Shape
	Pick  uint64 // chooses among what a trouble of the store may be done to
	Calm  bool   // it is done in a calm
}

// target names what the fault occupies.
func (f fault) target() string {
	switch f.kind.on {
	case aLink:
		return fmt.Sprintf("link-%d-%d", min(f.Node, f.Other), max(f.Node, f.Other))
	case aWay:
		return fmt.Sprintf("store-%d", f.Node)
	case aNode:
		return fmt.Sprintf("node-%d", f.Node)
	case theStore:
		return "store"
	}
	return f.kind.name
}

func (f fault) String() string {
	text := f.kind.name
	switch f.kind.on {
	case aLink:
		text += fmt.Sprintf(": node-%d to node-%d", f.Node, f.Other)
	case aNode, aWay:
		text += fmt.Sprintf(": node-%d", f.Node)
	}
	if s := f.Shape; s.Rate > 0 {
		text += fmt.Sprintf(", %d bytes/s", s.Rate)
	} else if s.Delay > 0 {
		text += fmt.Sprintf(", %v and up to %v more", s.Delay, s.Jitter)
	}
	return fmt.Sprintf("%s, for %v", text, f.For)
}

// Bounds of what is done to links.
const (
	leastRate, mostRate = 50_000.0, 1_000_000.0 // bytes a second
	mostStall           = 8 * time.Second
)

// Shapes.
func stalled(*rand.Rand) machine.Shape { return machine.Shape{Stall: true} }

func delayed(rng *rand.Rand) machine.Shape {
	return machine.Shape{Delay: farDelay, Jitter: time.Duration(rng.Int64N(int64(farJitter))).Round(time.Millisecond)}
}

func throttled(rng *rand.Rand) machine.Shape { // each power of two as often
	return machine.Shape{Rate: int(leastRate * math.Pow(mostRate/leastRate, rng.Float64()))}
}

// Ends.
func bothEnds(s machine.Shape) (there, back machine.Shape)  { return s, s }
func backAlone(s machine.Shape) (there, back machine.Shape) { return machine.Shape{}, s }

// The kinds that others speak of.
var (
	cutRequests = &faultKind{name: "node's requests to the store lost", weight: 2, on: aWay, least: 0.5, most: 3, shape: stalled}
	restartNode = &faultKind{name: "node restarted in order", weight: 2, do: (*torture).restartNode, planned: true}
	cutFile     = &faultKind{name: "node cut off from the file", weight: 4, on: aWay, least: 0.5, most: 3, do: (*torture).cutFile}
	joinLeave   = &faultKind{name: "node joins, and leaves in order", weight: 1, least: 0.5, most: 1.5, do: (*torture).joinAndLeave, planned: true}
)

// faultKinds are all but the troubles of the store.
var faultKinds = []*faultKind{
	{name: "kill -9 of a node", weight: 5, most: 1.5, do: (*torture).killNode},
	{name: "stop of a node", weight: 6, least: 0.5, most: 3, do: (*torture).pauseNode},
	{name: "node cut off from the store", weight: 4, on: aWay, least: 0.5, most: 3, shape: stalled, ends: bothEnds},
	cutRequests,
	{name: "store's replies to a node lost", weight: 2, on: aWay, least: 0.5, most: 3, shape: stalled, ends: backAlone},
	{name: "node's way to the store delayed", weight: 3, on: aWay, least: 0.5, most: 4, shape: delayed, ends: bothEnds},
	{name: "two nodes cut off from each other", weight: 3, on: aLink, least: 0.2, most: 3, shape: stalled, ends: bothEnds},
	{name: "one direction between two nodes cut", weight: 5, on: aLink, least: 0.2, most: 4, shape: stalled},
	{name: "one direction between two nodes delayed", weight: 4, on: aLink, least: 0.5, most: 4, shape: delayed},
	{name: "one direction between two nodes throttled", weight: 3, on: aLink, least: 0.5, most: 4, shape: throttled},
	{name: "processors busy", weight: 2, on: theCPU, least: 0.5, most: 1.5, do: (*torture).starve},
	cutFile,
	restartNode,
	joinLeave,
}

// round is a storm of faults, and after everything is healed moves without one.
type round struct {
	Storm []fault
	Calm  []fault // one after the other
}

// plan draws rounds from a seed: the same seed, sizes and troubles, the same rounds.
type plan struct {
	options
	rng   *rand.Rand
	kinds []*faultKind
}

// newPlan makes a plan. Links have shapes if they can be slowed down, and ways if nodes
// reach the store over a network.
func newPlan(o options, seed uint64, shaped, ways bool, troubles []Trouble) *plan {
	p := &plan{options: o, rng: rand.New(rand.NewPCG(seed, 0x746f7274757265))}
	for _, k := range faultKinds {
		slow := k.shape != nil && !k.shape(rand.New(rand.NewPCG(1, 1))).Stall
		if (shaped || !slow) && (ways && k != cutFile || k.on != aWay || !ways && k == cutFile) {
			p.kinds = append(p.kinds, k)
		}
	}
	p.kinds = append(p.kinds, o.more...)
	for _, t := range troubles {
		p.kinds = append(p.kinds, &faultKind{name: t.Name, weight: t.Weight, on: theStore, least: t.Least, most: t.Most, do: (*torture).troubleStore, trouble: &t})
	}
	return p
}

// after is for how long a target is left alone when its fault is undone.
const after = 500 * time.Millisecond

// next draws a round.
func (p *plan) next() (r round) {
	busy := map[string]time.Duration{}
	var at []time.Duration
	for range p.faults {
		at = append(at, min(p.storm-time.Millisecond, time.Duration(p.rng.Int64N(int64(p.storm))).Round(time.Millisecond)))
	}
	slices.Sort(at)
	for _, when := range at {
		for range 20 {
			f := p.draw(p.kind())
			if busy[f.target()] > when {
				continue // it is in trouble
			}
			f.After = when
			busy[f.target()] = when + f.For + after
			r.Storm = append(r.Storm, f)
			break
		}
	}
	r.Calm = append(r.Calm, p.draw(restartNode))
	if p.rng.IntN(3) == 0 {
		r.Calm = append(r.Calm, p.draw(joinLeave))
	}
	for i := range r.Calm {
		r.Calm[i].Calm = true
	}
	return r
}

func (p *plan) kind() *faultKind {
	sum := 0
	for _, k := range p.kinds {
		sum += k.weight
	}
	x := p.rng.IntN(sum)
	i := slices.IndexFunc(p.kinds, func(k *faultKind) bool { x -= k.weight; return x < 0 })
	return p.kinds[i]
}

// draw makes a fault of a kind.
func (p *plan) draw(k *faultKind) fault {
	f := fault{kind: k, Node: p.rng.IntN(p.nodes), Pick: p.rng.Uint64()}
	f.Other = (f.Node + 1 + p.rng.IntN(p.nodes-1)) % p.nodes
	f.For = time.Duration((k.least + (k.most-k.least)*p.rng.Float64()) * float64(p.ttl)).Round(time.Millisecond)
	if k == joinLeave {
		f.Node = p.nodes
	}
	if k.shape != nil {
		f.Shape = k.shape(p.rng)
		f.For = min(f.For, mostStall)
	}
	return f
}

// inflict does a fault, and undoes it.
func (t *torture) inflict(ctx context.Context, f fault) {
	switch f.kind.on {
	case aNode:
		s := t.slots[f.Node]
		s.op.Lock()
		defer s.op.Unlock()
	case theStore:
		t.storeOp.Lock()
		defer t.storeOp.Unlock()
	}
	d := done{fault: f, from: machine.Now()}
	defer func() {
		d.to = machine.Now()
		t.mu.Lock()
		t.done = append(t.done, d)
		t.mu.Unlock()
	}()
	if f.kind.trouble == nil {
		t.say("%v", f)
	}
	if f.kind.do != nil {
		f.kind.do(t, ctx, f)
		return
	}
	there, back := f.Shape, machine.Shape{}
	if f.kind.ends != nil {
		there, back = f.kind.ends(f.Shape)
	}
	set := func(there, back machine.Shape) {
		if f.kind.on == aWay {
			t.net.store(f.Node, there, back)
			return
		}
		t.net.link(f.Node, f.Other, there)
		t.net.link(f.Other, f.Node, back)
	}
	set(there, back)
	err := machine.Pause(ctx, f.For)
	set(machine.Shape{}, machine.Shape{})
	scene.Check(err)
}

func (t *torture) killNode(ctx context.Context, f fault) {
	if err := t.kill(t.slots[f.Node]); err != nil {
		t.evil(ruleProcess, err)
	}
	scene.Check(machine.Pause(ctx, f.For))
	t.start(f.Node)
}

// cutFile cuts a node off from a file, which no network does.
func (t *torture) cutFile(ctx context.Context, f fault) {
	p := t.slots[f.Node].current()
	if p == nil || p.Tell(order{Do: doCut}) != nil {
		return // it is gone
	}
	err := machine.Pause(ctx, f.For)
	_ = p.Tell(order{Do: doMend}) // it may have been killed
	scene.Check(err)
}

func (t *torture) pauseNode(ctx context.Context, f fault) {
	p := t.slots[f.Node].current()
	if p == nil {
		return
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.evil(ruleProcess, err)
		return
	}
	scene.Check(errors.Join(machine.Pause(ctx, f.For), p.Signal(syscall.SIGCONT)))
}

// starve keeps the processors busy, with twice as many processes.
func (t *torture) starve(ctx context.Context, f fault) {
	end := machine.Burners(2 * runtime.NumCPU())
	scene.Check(errors.Join(machine.Pause(ctx, f.For), end()))
}

// troubleStore does what the store's kit can.
func (t *torture) troubleStore(ctx context.Context, f fault) {
	what, undo, err := f.kind.trouble.Do(ctx, f.Pick)
	if what != "" {
		what = ": " + what
	}
	t.say("%v%s, for %v", f.kind.name, what, f.For)
	scene.Check(err)
	scene.Check(errors.Join(machine.Pause(ctx, f.For), undo(ctx)))
}

func (t *torture) restartNode(ctx context.Context, f fault) {
	t.leave(f.Node, f.Calm)
	t.join(ctx, f)
}

func (t *torture) joinAndLeave(ctx context.Context, f fault) {
	t.join(ctx, f)
	scene.Check(machine.Pause(ctx, f.For))
	t.leave(f.Node, f.Calm)
}

// join starts a process; in calm it must begin.
func (t *torture) join(ctx context.Context, f fault) {
	t.start(f.Node)
	if f.Calm {
		if _, err := t.awaitUp(ctx, f.Node); err != nil {
			t.evil(ruleDeparted, err)
		}
		scene.Check(ctx.Err())
	}
}

// leave has a node leave; in calm it must.
func (t *torture) leave(i int, calm bool) {
	err := t.leaveBy(t.slots[i], leaveBound)
	switch {
	case err != nil && calm:
		t.evil(ruleDeparted, err)
	case err != nil:
		t.say("node-%d, told to leave in a storm: %v", i, err)
		t.mu.Lock()
		t.slowGone++
		t.mu.Unlock()
	}
}

// Stores are the kinds of store that nodes can run over; tests add theirs.
var Stores = []Store{overEtcd, overPostgres, overSQLite, overRedis, overKubernetes}

// Child is the whole of a process that a scenario started; in any other it does nothing. A program
// that plays scenarios calls it first.
func Child() {
	machine.Burn()
	arg := os.Getenv(nodeEnv)
	if arg == "" {
		return
	}
	if err := runNode(arg); err != nil {
		fmt.Fprintln(os.Stderr, "lab node:", err)
		os.Exit(2)
	}
	os.Exit(0)
}

// Scenarios returns them all.
func Scenarios() []scene.Scenario {
	return []scene.Scenario{
		{Name: "torture", About: "storms of faults from a seed, on nodes, servers and links, with calms between; I1 to I7 and the fenced journal hold", Do: tortureScenario(newNetwork)},
		{Name: "torture-proxies", About: "torture over links that are also delayed, throttled and stalled", Do: tortureScenario(newProxies)},
		{Name: "kills", About: "the node that hosts a singleton is killed, again and again; every survivor has an answer in time",
			Do: deaths{nodes: 3, names: names{Singletons: 1}, ttl: 2 * time.Second, kills: 20, target: host, back: time.Second}.sized(20, 1, 0)},
		{Name: "stops", About: "nodes that host singletons are killed, or stopped (SIGSTOP) for 3 TTLs, and go on; the others take over in time, and no sooner than the TTL allows",
			Do: deaths{nodes: 4, names: names{Singletons: 10}, ttl: 2 * time.Second, target: busiest, back: 4 * time.Second, stops: true}.sized(40, 2, 0)},
		{Name: "shardkills", About: "a node that hosts shards is killed under load, again and again; all shards answer every survivor in time",
			Do: deaths{nodes: 4, names: names{Shards: 256, Each: 2}, ttl: 2 * time.Second, asks: 2000, kills: 10, back: 2 * time.Second}.sized(10, 1, 32)},
		{Name: "many", About: "5000 singletons, idle, and the death of a node: what they cost, and when all answer again",
			Do: deaths{nodes: 3, names: names{Singletons: 5000}, ttl: 10 * time.Second, kills: 1, target: busiest, back: 5 * time.Second,
				start: 15 * time.Second, idle: &needs{heap: 4 + 5000*16./1024, goroutines: 60 + 25, requests: 50}}.sized(1, 1, 60)},
		{Name: "shards", About: "10 000 shards: what they cost while idle; the coordinator is killed, leaves in order, and a node joins",
			Do: deaths{nodes: 4, names: names{Shards: 10_000, Each: 1}, ttl: 5 * time.Second, kills: 1, target: coordinator, back: 3 * time.Second,
				start: assignBound, idle: &needs{heap: 8 + 10_000*4./1024, requests: 50}, then: succession}.sized(1, 1, 200)},
		{Name: "handovers", About: "a singleton goes round three nodes under 10 000 letters a second; nothing lost, doubled or out of order, and a short silence",
			Do: moves{nodes: 3, set: settings{TTL: 10 * time.Second, Names: names{Singletons: 1}, Follows: true, Buffer: 10_000}, rate: 10_000, size: 50,
				every: 400 * time.Millisecond, deck: []move{handOver}, gap: 20 * time.Millisecond}.sized(4, 0.06)},
		{Name: "singletonload", About: "a singleton moves every 2 s under 5000 letters a second, for a while on a busy machine; nothing lost uncounted, and bounded heap",
			Do: moves{nodes: 3, set: settings{TTL: 10 * time.Second, Names: names{Singletons: 1}, Follows: true, Size: 100}, rate: 5000,
				length: 5 * time.Minute, every: 2 * time.Second, deck: []move{handOver}, busy: 30 * time.Second, heap: heapMost}.sized(0, 0.1)},
		{Name: "rolling", About: "all nodes that host shards are restarted under 5000 asks a second; all answered, once, in order",
			Do: moves{nodes: 4, clients: 1, set: settings{TTL: 10 * time.Second, Names: names{Shards: 256, Each: 4}}, asks: 5000, size: 4,
				every: 2 * time.Second, deck: []move{restart}}.sized(2, 0.08)},
		{Name: "restarts", About: "5 nodes are restarted under their addresses, 20 by SIGTERM and 20 by kill -9 in turn, under 2000 asks a second and letters between all; only what is under way at a kill is lost, and every ask ends",
			Do: moves{nodes: 5, set: settings{TTL: 5 * time.Second, Names: names{Singletons: 4, Shards: 64, Each: 2}}, rate: 1000, asks: 2000, within: 30 * time.Second,
				size: 20, length: 6 * time.Minute, every: 100 * time.Millisecond, deck: []move{inTurn}, away: 200 * time.Millisecond}.sized(1, 0.1)},
		{Name: "load", About: "accounts are asked, stopped for idleness and for room, and started again, while all moves, for 30 minutes; nothing lost, nothing grows",
			Do: moves{nodes: 4, set: settings{TTL: 10 * time.Second, Names: names{Singletons: 2, Shards: 64, Each: 128}, Follows: true, Idle: 2 * time.Second,
				MaxActive: 260}, asks: 800, length: 30 * time.Minute, every: 20 * time.Second, deck: []move{drain, drain, drain, handOver, handOver, restart}, grow: true}.sized(0, 0.5)},
		{Name: "scheduler", About: "jobs and ticks of a singleton go into a fenced ledger; its host is killed, and the next stopped, in the middle of a job; each job is done once",
			Do: books{hosts: 3, names: names{Singletons: 1}, clients: 2, target: host}.play},
		{Name: "bank", About: "transfers between accounts go into a fenced ledger; a node joins, one leaves, one is killed and one stopped in the middle of a transfer; no money is lost",
			Do: books{hosts: 4, names: names{Shards: 64, Each: 1}, joins: true, clients: 4, target: coordinator}.play},
		{Name: "congestion", About: "shards move while all links are slow, and while one is stalled; what goes over them, what is lost uncounted, how soon it heals", Do: congestion},
		{Name: "backlog", About: "a node is stopped over a mailbox of up to 1 000 000 letters; how long until the last is handled at the other, and how that grows", Do: backlog},
		{Name: "slowlink", About: "accounts with state move over links that carry less than is sent; what was handled and what was counted make up what was sent", Do: slowLink},
		{Name: "reshard", About: "the number of shards changes, and whoever moves what is remembered is killed; every account runs again, once, in its shard", Do: reshard},
		{Name: "restore", About: "etcd's data is lost, put back to an older copy, and put back with its revision beyond; Health says so, and tokens never go back", Do: restore},
	}
}

// Beside is a scenario with another version of this program: every other life of each node is one of it.
func Beside(former string) scene.Scenario {
	return scene.Scenario{Name: "beside", About: "nodes of two versions of the library; singletons and shards with state move between them under load, and nodes change their version",
		Do: moves{nodes: 4, set: settings{TTL: 10 * time.Second, Names: names{Singletons: 1, Shards: 16, Each: 2}, Follows: true, State: 1000, Former: former},
			rate: 200, asks: 200, size: 9, every: 2 * time.Second, deck: []move{handOver, drain, restart}}.play}
}

// sized is the scenario; short, it has so many kills, and names if that is not 0.
func (d deaths) sized(kills, short, names int) func(context.Context, *scene.Run) {
	return func(ctx context.Context, r *scene.Run) {
		d := d
		d.kills = kills
		if r.Short {
			d.kills, d.asks, d.ttl = short, d.asks/8, 2*time.Second
			if names > 0 {
				d.names.Singletons, d.names.Shards = min(d.names.Singletons, names), min(d.names.Shards, names)
			}
		}
		d.play(ctx, r)
	}
}

// sized is the scenario, for as long as the run says; short, it has so many moves, if that is not 0, and
// that share of the load.
func (m moves) sized(short int, share float64) func(context.Context, *scene.Run) {
	return func(ctx context.Context, r *scene.Run) {
		m := m
		if r.Short {
			m.rate, m.asks, m.size = m.rate*share, m.asks*share, short
			m.nodes, m.set.Names.Shards = min(m.nodes, 3), min(m.set.Names.Shards, 32)
			if short == 0 {
				m.length, m.every, m.busy = 20*time.Second, 2500*time.Millisecond, min(m.busy, 3*time.Second)
			}
		}
		m.length = cmp.Or(r.For, m.length)
		m.play(ctx, r)
	}
}
