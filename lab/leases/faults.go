//go:build linux

package leases

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// fault is one that a bed meets.
type fault struct {
	name    string
	title   string
	store   string                   // empty: postgres
	nodes   int                      // 0: 3
	names   map[string]time.Duration // nil: contended
	look    time.Duration            // from one look of a holder to the next; 0: as journal has it
	options []postgrestest.Option
	// prepare adds to the server what the fault needs, before there are nodes.
	prepare action
	// inflict returns once the fault is over, and sets b.gone and b.returning.
	inflict action
	// keeps: if the fault took less than half a TTL, no holder loses what it holds.
	keeps bool
	// loses: service is gone for more than a TTL, so that every holder loses what it holds.
	loses bool
	// clock: two may believe, as the server's clock is stepped or what it told was lost; back: and
	// tokens may go back.
	clock, back bool
}

// names that nodes contend for: by how long each holder keeps one; 0: as long as it can.
func contended() map[string]time.Duration {
	return map[string]time.Duration{"long/1": 0, "long/2": 0, "short/1": 300 * time.Millisecond, "short/2": 400 * time.Millisecond}
}

// finding is what a bed showed of a fault.
type finding struct {
	verdict
	out       time.Duration // how long service was gone; 0: it was not
	held      int           // terms of long names that were alive when the fault began
	lost      int           // of these
	reasons   map[string]int
	believed  time.Duration // how long after the fault began the last of the lost was believed in
	heldAgain time.Duration // after the fault's end, until every name was held
	silence   error         // a holder believed while no renewal can have succeeded
}

// most is how long recovery may take, on a machine that is busy.
func most(ttl time.Duration) time.Duration { return ttl + 20*time.Second }

// once plays the fault on a bed of its own.
func (f fault) once(ctx context.Context, run *scene.Run, ttl time.Duration) finding {
	b := newBed(ctx, run, cmp.Or(f.store, onPostgres), ttl, f.options...)
	defer b.close()
	names := f.names
	if names == nil {
		names = contended()
	}
	b.names, b.journal.look = map[string]time.Duration{}, f.look
	if f.prepare != nil {
		f.prepare(ctx, b)
	}
	for i := range cmp.Or(f.nodes, 3) {
		b.newNode(ctx, fmt.Sprintf("node-%d", i+1))
	}
	b.contend(names)
	b.held(ctx, lab.Now(), most(ttl))
	scene.Check(lab.Pause(ctx, ttl/2))
	b.began = lab.Now()
	f.inflict(ctx, b)
	over := lab.Now()
	heldAgain := b.held(ctx, over, most(ttl))
	scene.Check(lab.Pause(ctx, ttl/2)) // what is noticed late
	b.stop()
	r := b.find(b.began, over)
	r.heldAgain, r.silence = heldAgain, b.silence()
	return r
}

// attempts is how often a fault is played that should have cost no holder a term, and did: a machine
// that is busy with other things may have.
const attempts = 3

// robbed reports whether a holder lost what it should have kept. Half a TTL without service ends
// no holder's trust: the last renewal was sent at most a third of a TTL before, and the margin is a
// tenth.
func (f fault) robbed(r finding, ttl time.Duration) bool {
	return f.keeps && r.out < ttl/2 && r.lost > 0
}

// play plays the fault and judges it: no two believe in a name at once and tokens grow, unless the
// server's clock was stepped; no holder believes beyond its deadline; and soon after, every name is
// held again.
func (f fault) play(ctx context.Context, ttl time.Duration, run *scene.Run) (r finding) {
	for range attempts {
		r = f.once(ctx, run, ttl)
		run.Printf("%d of %d lost %v, the last %v after it began; gone for %v, all held %v after; %v", r.lost, r.held, r.reasons,
			scene.Short(r.believed), scene.Short(r.out), scene.Short(r.heldAgain), r.verdict)
		if !f.robbed(r, ttl) {
			break
		}
	}
	if r.backward > 0 && !f.back || r.doubles > 0 && (!f.clock || r.longest > ttl) {
		run.Unsafe("%v", r.verdict)
	}
	if r.silence != nil {
		run.Unsafe("%v", r.silence)
	}
	if f.robbed(r, ttl) {
		run.Violation("lost though service was gone for %v only: %v", r.out, r.reasons)
	}
	if f.loses && r.held != r.lost {
		run.Unsafe("%d of %d were kept though no renewal can have succeeded", r.held-r.lost, r.held)
	}
	if f.loses && r.believed >= ttl {
		run.Unsafe("believed for longer than the TTL: %v", r.believed)
	}
	return r
}

// scenario is the fault alone, with leases of 5 s: long enough for a holder on a machine that is busy
// to lose nothing.
func (f fault) scenario() scene.Scenario {
	return scene.Scenario{Name: f.name, About: f.title, Do: func(ctx context.Context, run *scene.Run) {
		if r := f.play(ctx, 5*time.Second, run); r.held != 2 {
			scene.Check(fmt.Errorf("%d of the 2 long names were held when it began", r.held))
		}
	}}
}

// find looks at the journal.
func (b *bed) find(began, over time.Duration) finding {
	list := b.journal.all()
	r := finding{verdict: judge(list), reasons: map[string]int{}}
	if b.gone != 0 {
		r.out = over - b.gone
	}
	for _, e := range list {
		if b.names[e.Name] != 0 || e.First > began || e.Last < began {
			continue
		}
		r.held++
		if e.Reason != "" {
			r.lost++
			r.reasons[e.Reason]++
			r.believed = max(r.believed, e.Last-began)
		}
	}
	return r
}

// silence is an error if anybody believed between when all must have stopped and when service
// began to return.
func (b *bed) silence() error {
	trust := b.ttl - max(b.ttl/10, 100*time.Millisecond)
	if b.gone == 0 || b.returning < b.gone+trust {
		return nil
	}
	for _, e := range b.journal.all() {
		if e.Last > b.gone+trust && e.First < b.returning {
			return fmt.Errorf("believed %v after the service had gone, and no renewal can have succeeded: %+v", e.Last-b.gone, e)
		}
	}
	return nil
}

// outage has the server away for minutes, under holders of many names.
func outage(ctx context.Context, run *scene.Run) {
	n, ttl, away := 200, 10*time.Second, cmp.Or(run.For, 2*time.Minute)
	if run.Short {
		n, ttl, away = 50, 2*time.Second, 5*time.Second
	}
	if away < 2*ttl {
		scene.Check(fmt.Errorf("-for must be at least %v", 2*ttl))
	}
	f := fault{store: storeOf(run), nodes: 2, names: map[string]time.Duration{}, look: 20 * time.Millisecond, loses: true}
	for i := range n {
		f.names[fmt.Sprint("outage/", i)] = 0
	}
	var early, late int // goroutines at most, in the halves of the outage
	f.inflict = func(ctx context.Context, b *bed) {
		scene.Check(b.kill())
		b.lost()
		for since := lab.Now(); lab.Now() < since+away; {
			to := &early
			if lab.Now() > since+away/2 {
				to = &late
			}
			*to = max(*to, runtime.NumGoroutine())
			scene.Check(lab.Pause(ctx, 20*time.Millisecond))
		}
		b.returns()
		scene.Check(b.restart(ctx))
	}
	r := f.play(ctx, ttl, run)
	run.AtMost("names that were not held before", float64(n-r.held), 0, "")
	run.Figure("goroutines at most, in the halves of the outage", "%d and %d", early, late)
	if !run.Short { // beside others
		run.AtMost("goroutines that the second half adds", float64(late-early), 30, "")
	}
	run.Within("all held again after its return", r.heldAgain, ttl+2*time.Second)
}
