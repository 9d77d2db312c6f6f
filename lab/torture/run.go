//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/test/cluster"
)

// options are the flags.
type options struct {
	length  time.Duration
	seed    uint64
	nodes   int
	ttl     time.Duration
	rate    float64 // asks a second, of each node
	storm   time.Duration
	faults  int // of a storm
	proxied bool
	verbose bool
	broken  bool // the nodes are, so that the oracle has something to find
}

// The bounds of I7, beyond the TTL. A name's is for its lease to end late, to be
// acquired, and for nodes to find the store and each other again. A node's is longer: what
// TCP has not delivered over a link that was cut it tries again after a pause that has
// doubled each time.
const (
	nameBound = 5 * time.Second
	nodeBound = 20 * time.Second
)

// leaveBound is how long a node that is told to leave may take.
const leaveBound = 25 * time.Second

// done is a fault that was done.
type done struct {
	fault
	round    int
	calm     bool
	from, to time.Duration
}

// torture is a run.
type torture struct {
	options
	out io.Writer
	*crew
	troubles []Trouble
	plan     *plan
	burners  *cluster.Place
	began    time.Duration
	cores    int

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
func newTorture(ctx context.Context, store Store, o options, out io.Writer) (t *torture, err error) {
	t = &torture{options: o, out: out, cores: runtime.NumCPU()}
	t.crew = &crew{settings: settings{Store: store.Name, TTL: o.ttl, Rate: o.rate, Names: names{Singletons: 2, Shards: 16, Each: 2},
		Verbose: o.verbose, Broken: o.broken}}
	if t.servers, err = store.Start(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", store.Name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	t.troubles = t.servers.Troubles()
	if err = checkTroubles(t.troubles); err != nil {
		return t, fmt.Errorf("%s: %w", store.Name, err)
	}
	if t.burners, err = cluster.NewPlace(false); err != nil {
		return t, err
	}
	if t.dir, err = os.MkdirTemp("", "holdfast-torture-"); err != nil {
		return t, err
	}
	if t.net, err = newNetwork(t.servers.Addresses(), o.nodes+1, o.proxied, o.seed); err != nil {
		return t, err
	}
	t.began = cluster.Now()
	load, _ := os.ReadFile("/proc/loadavg") // only printed
	t.plan = newPlan(o, t.net.shapes(), len(t.servers.Addresses()) > 0, t.troubles)
	t.printf("%s: %d processors, load %.14s, %s, %v; %v", time.Now().UTC().Format("2006-01-02 15:04"),
		t.cores, load, runtime.Version(), t.servers, t.net)
	t.printf("seed %d: %d nodes and a spare one, TTL %v, %d singletons, %d shards, %d accounts, %.0f asks a second of each node",
		o.seed, o.nodes, o.ttl, t.settings.Names.Singletons, t.settings.Names.Shards, t.settings.Names.Shards*t.settings.Names.Each, o.rate)
	for i := range o.nodes + 1 {
		t.slots = append(t.slots, &slot{index: i})
	}
	for i := range o.nodes {
		if err = t.start(i); err != nil {
			return t, err
		}
	}
	for i := range o.nodes {
		if _, err = t.awaitUp(ctx, i); err != nil {
			return t, err
		}
	}
	return t, nil
}

func (t *torture) close() error {
	errs := []error{t.crew.end()}
	if t.net != nil {
		errs = append(errs, t.net.close())
	}
	if t.burners != nil {
		t.burners.End()
	}
	return errors.Join(append(errs, t.servers.Close())...)
}

func (t *torture) printf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, format+"\n", args...)
}

// say prints with the time since the run began.
func (t *torture) say(format string, args ...any) {
	t.printf("%9.3f  "+format, append([]any{(cluster.Now() - t.began).Seconds()}, args...)...)
}

// evil is a violation that needs no journal.
func (t *torture) evil(rule string, err error) {
	t.say("VIOLATION %s: %v", rule, err)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.evils = append(t.evils, violation{rule: rule, text: err.Error()})
}

func (t *torture) awaitUp(ctx context.Context, i int) (time.Duration, error) {
	p := t.slots[i].current()
	if p == nil {
		return 0, fmt.Errorf("node-%d has no process", i)
	}
	r, err := p.Await(ctx, patience+10*time.Second, isUp, func(r said) bool { return r.What == isUp })
	return r.At, err
}

// run tortures until the time has passed.
func (t *torture) run(ctx context.Context) error {
	if err := t.heal(ctx, 0); err != nil {
		return err
	}
	for n := 1; n == 1 || cluster.Now()-t.began < t.length; n++ {
		r := t.plan.next()
		if err := t.weather(ctx, n, r.Storm); err != nil {
			return err
		}
		if err := t.heal(ctx, n); err != nil {
			return err
		}
		if err := t.calm(ctx, n, r.Calm); err != nil {
			return err
		}
		if err := t.meanwhile(ctx); err != nil {
			return err
		}
	}
	t.ended = cluster.Now()
	return nil
}

// weather is a storm: it returns when all its faults were undone.
func (t *torture) weather(ctx context.Context, n int, storm []fault) error {
	t.say("storm %d: %d faults", n, len(storm))
	began := cluster.Now()
	errs := make([]error, len(storm))
	var all sync.WaitGroup
	for i, f := range storm {
		all.Go(func() {
			if errs[i] = cluster.Pause(ctx, began+f.After-cluster.Now()); errs[i] == nil {
				errs[i] = t.inflict(ctx, n, f, false)
			}
		})
	}
	all.Wait()
	for _, s := range t.slots {
		if err := s.check(); err != nil {
			t.evil(ruleProcess, err)
			if err := s.gone(); err != nil {
				return err
			}
			if s.index < t.nodes {
				errs = append(errs, t.start(s.index))
			}
		}
	}
	return errors.Join(errs...)
}

// heal waits until every node runs, and has had an answer of every name.
func (t *torture) heal(ctx context.Context, n int) error {
	at := cluster.Now()
	if n > 0 { // the first time nothing has been healed
		t.mu.Lock()
		t.heals = append(t.heals, healing{n, at})
		t.mu.Unlock()
	}
	errs := make([]error, t.nodes)
	var all sync.WaitGroup
	for i := range t.nodes {
		all.Go(func() { errs[i] = t.sweep(ctx, i, n, at) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, err := range errs {
		if err != nil {
			t.evil(ruleI7, err)
		}
	}
	t.say("storm %d is over: every name has answered every node after %v", n, (cluster.Now() - at).Round(time.Millisecond))
	return nil
}

func (t *torture) sweep(ctx context.Context, i, n int, healed time.Duration) error {
	up, err := t.awaitUp(ctx, i)
	if err != nil {
		return err
	}
	p, number := t.slots[i].current(), n+1
	if err := p.Tell(order{Sweep: number}); err != nil {
		return err
	}
	r, err := p.Await(ctx, patience+10*time.Second, "answers of all names", func(r said) bool { return r.What == hasSwept && r.Sweep == number })
	if err != nil || n == 0 {
		return err
	}
	took := r.At - max(healed, up)
	t.mu.Lock()
	t.nodeBack = append(t.nodeBack, took)
	t.mu.Unlock()
	if took > t.ttl+nodeBound {
		return fmt.Errorf("%s had an answer of every name only %v after storm %d", p.ID, took, n)
	}
	return nil
}

// calm does planned moves, with no fault before or after it for a while.
func (t *torture) calm(ctx context.Context, n int, moves []fault) error {
	if err := cluster.Pause(ctx, calmPause); err != nil { // answers that are under way have come
		return err
	}
	from := cluster.Now()
	for _, f := range moves {
		if err := t.inflict(ctx, n, f, true); err != nil {
			return err
		}
		if err := cluster.Pause(ctx, 2*time.Second); err != nil { // shards move to who has come
			return err
		}
	}
	t.mu.Lock()
	t.calms = append(t.calms, span{from, cluster.Now()})
	t.mu.Unlock()
	return cluster.Pause(ctx, answerWithin)
}

// meanwhile judges what there is so far, for who looks on.
func (t *torture) meanwhile(ctx context.Context) error {
	ev, err := t.crew.evidence()
	if err != nil {
		return err
	}
	t.mu.Lock()
	calms, heals := t.calms, t.heals
	t.mu.Unlock()
	// Of the journals' last minutes: all of it is judged in the end.
	since := cluster.Now() - 2*time.Minute
	recent := make([]seen, 0, len(ev))
	for _, e := range ev {
		if e.at >= since {
			recent = append(recent, e)
		}
	}
	for len(heals) > 0 && heals[0].at < since {
		heals = heals[1:]
	}
	for len(calms) > 0 && calms[0].from < since {
		calms = calms[1:]
	}
	_, hs, err := t.history(ctx)
	if err != nil {
		return err
	}
	j := judge(t.bring(recent, calms, heals, nil, hs))
	for _, v := range j.violations {
		if v.rule == ruleI3 && cluster.Now()-t.began > 2*time.Minute && len(v.lines) > 0 && v.lines[0].at == 0 {
			continue // its sessions' confirmations may be older
		}
		if v.rule == ruleState && cluster.Now()-t.began > 2*time.Minute {
			continue // what was left may be older
		}
		if v.rule == ruleCalm {
			continue // of the calms of two minutes
		}
		t.say("so far: %s: %s", v.rule, v.text)
	}
	return nil
}

func (t *torture) bring(es []seen, calms []span, heals []healing, rs []record, hs []hold) evidence {
	return evidence{entries: es, names: t.settings.Names, ttl: t.ttl, margin: max(t.ttl/10, 100*time.Millisecond),
		calms: calms, heals: heals, back: nameBound, records: rs, holds: hs}
}
