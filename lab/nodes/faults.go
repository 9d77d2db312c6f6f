//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
)

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
	Do func(ctx context.Context, pick uint64) (what string, undo func(context.Context) error, err error)
}

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
			if f.kind.on == theStore && busy["store"] > when || busy[f.target()] > when {
				continue // it is in trouble
			}
			f.After = when
			busy[f.target()] = when + f.For + after
			if f.kind.on == theStore {
				busy["store"] = when + f.For + after
			}
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
	set := func(there, back machine.Shape) error {
		if f.kind.on == aWay {
			return t.net.store(f.Node, there, back)
		}
		return errors.Join(t.net.link(f.Node, f.Other, there), t.net.link(f.Other, f.Node, back))
	}
	err := set(there, back)
	if err == nil {
		err = machine.Pause(ctx, f.For)
	}
	scene.Check(errors.Join(err, set(machine.Shape{}, machine.Shape{})))
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
	end := scene.Must(machine.Burners(2 * runtime.NumCPU()))
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
