//go:build linux

package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// options are the sizes of a torture.
type options struct {
	length  time.Duration
	nodes   int // besides the spare one that joins and leaves
	ttl     time.Duration
	rate    float64 // asks a second, of each node
	storm   time.Duration
	faults  int // of a storm, at most
	proxied bool
	more    []*faultKind // drawn besides
	broken  bool         // the nodes are, so that the oracle has something to find
}

// tortureScenario breaks nodes and their servers by faults that are drawn; over proxies, which also
// delay, throttle and stall what is sent, if proxied.
func tortureScenario(proxied bool) func(context.Context, *scene.Run) {
	return func(ctx context.Context, r *scene.Run) {
		o := options{length: cmp.Or(r.For, 5*time.Minute), nodes: 4, ttl: 2 * time.Second, rate: 25, storm: 12 * time.Second, faults: 16, proxied: proxied}
		if r.Short {
			o.length, o.nodes, o.rate, o.storm, o.faults = cmp.Or(r.For, time.Second), 3, 20, 4*time.Second, 5
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

	mu       sync.Mutex
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
	t.crew = newCrew(ctx, r, o.nodes+1, 3, func(servers []string) network {
		return newNetwork(servers, o.nodes+1, o.proxied)
	}, set)
	t.began = machine.Now()
	t.plan = newPlan(o, r.Seed, t.net.shapes(), len(t.servers.Addresses()) > 0, t.servers.Troubles())
	t.Printf("   %d nodes and a spare one, TTL %v, %d singletons, %d shards, %d accounts, %.0f asks a second of each node",
		o.nodes, o.ttl, set.Names.Singletons, set.Names.Shards, set.Names.Shards*set.Names.Each, o.rate)
	return t
}

// start starts a process for a node, which asks.
func (t *torture) start(i int) {
	if t.slots[i].current() == nil {
		scene.Check(t.crew.start(i))
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
			scene.Check(t.gone(s))
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
		t.mu.Lock()
		t.heals = append(t.heals, healing{n, at})
		t.mu.Unlock()
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
	t.mu.Lock()
	t.calms = append(t.calms, span{from, machine.Now()})
	t.mu.Unlock()
	scene.Check(machine.Pause(ctx, calmAnswer))
}

func (t *torture) bring(es []seen, calms []span, heals []healing, ws []Write, hs []hold) evidence {
	return evidence{entries: es, names: t.settings.Names, ttl: t.ttl, margin: max(t.ttl/10, 100*time.Millisecond),
		calms: calms, heals: heals, back: nameBound, writes: ws, holds: hs}
}
