//go:build linux

package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
)

// crew is processes that contend for the same names.
type crew []*lab.Process[tenure]

// all is what they said, by name and time: of a tenure that was told twice the end.
func (c crew) all() []tenure {
	type key struct {
		node, name string
		token      lease.Token
	}
	last := map[key]tenure{}
	for _, p := range c {
		for _, e := range p.Said() {
			if k := (key{e.Node, e.Name, e.Token}); !last[k].Over {
				last[k] = e
			}
		}
	}
	var list []tenure
	for _, e := range last {
		list = append(list, e)
	}
	return inOrder(list)
}

// holders says who holds each name, as far as was told.
func (c crew) holders() map[string]tenure {
	now := map[string]tenure{}
	for _, e := range c.all() {
		if !e.Over {
			now[e.Name] = e
		}
	}
	return now
}

// holder is a process that contends for names and keeps each as long as it can, until its
// input ends. It prints each tenure when it begins and when it is over.
func holder(arg json.RawMessage) {
	var h holding
	scene.Check(json.Unmarshal(arg, &h))
	ctx, cancel := untilTold()
	defer cancel()
	k, end := h.keeper(ctx, h.ID)
	defer end()
	out := json.NewEncoder(os.Stdout)
	j := &journal{tell: func(e tenure) { _ = out.Encode(e) }} // an error: no reader is left
	var all sync.WaitGroup
	for i := range stoppedNames {
		l := scene.Must(k.Lease(stoppedName(i)))
		all.Go(func() { j.contend(ctx, h.ID, l, 0) })
	}
	all.Wait()
}

// stoppedNames is how many names processes contend for.
const stoppedNames = 10

func stoppedName(i int) string { return fmt.Sprint("stops/", i) }

// stops has processes that contend for names killed, or stopped (SIGSTOP) for three TTLs, one after the
// other. The others take what it held, and no sooner than it runs out; one that goes on must notice
// before its first look believes.
func stops(ctx context.Context, run *scene.Run) {
	rounds, ttl, processes := 40, 2*time.Second, 4
	if run.Short {
		rounds, ttl, processes = 2, time.Second, 2
	}
	b, of := compared(ctx, run, storeOf(run), ttl)
	defer b.close()
	b.place = scene.Must(lab.NewPlace(false))
	var all crew // those that were killed come last
	begin := func() {
		of.ID = fmt.Sprint("process-", len(all))
		all = append(crew{scene.Must(start[tenure](b.place, "holder", of.ID, of))}, all...)
	}
	for range processes {
		begin()
	}
	rng := rand.New(rand.NewPCG(run.Seed, 0))
	took, believed := map[syscall.Signal][]time.Duration{}, 0
	for round := range rounds {
		scene.Check(lab.Pause(ctx, upTo(rng, ttl/2))) // anywhere between renewals
		var before map[string]tenure
		await(ctx, 0, time.Minute, "all names are held", func() bool {
			before = all.holders()
			return len(before) == stoppedNames
		})
		node, signal := before[stoppedName(rng.IntN(stoppedNames))].Node, []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL}[round%2]
		at := slices.IndexFunc(all, func(p *lab.Process[tenure]) bool { return p.ID == node })
		victim, stopped := all[at], lab.Now()
		scene.Check(errors.Join(victim.Signal(signal), lab.Pause(ctx, 3*ttl)))
		terms, resumed := all.all(), lab.Now()
		for name, e := range before {
			if e.Node != node {
				continue
			}
			next := slices.IndexFunc(terms, func(e tenure) bool { return e.Name == name && e.Node != node && e.First > stopped })
			if next >= 0 {
				took[signal] = append(took[signal], terms[next].First-stopped)
			} else if all.holders()[name].Node == node {
				run.Violation("no other process held %s %v after %v of its holder", name, 3*ttl, signal)
			}
		}
		if signal == syscall.SIGKILL {
			all = append(slices.Delete(all, at, at+1), victim)
			begin()
			continue
		}
		scene.Check(victim.Signal(syscall.SIGCONT))
		stale := func(e tenure) bool { return e.Node == node && e.First < stopped }
		await(ctx, 0, time.Minute, node+" notices", func() bool {
			return !slices.ContainsFunc(all.all(), func(e tenure) bool { return stale(e) && !e.Over })
		})
		for _, e := range all.all() {
			if stale(e) && e.Last >= resumed {
				believed++
			}
		}
	}
	for _, p := range all[:processes] {
		scene.Check(p.Tell("end"))
		<-p.Done()
		scene.Check(p.Err())
	}
	v := judge(all.all())
	run.Figure("all terms", "TTL %v, %d processes: %v", ttl, processes, v)
	for signal, took := range took {
		run.Spread(fmt.Sprintf("%v: until another had a name", signal), took)
		if first := scene.Percentile(took, 0); first < ttl/3 {
			run.Unsafe("a name was taken over %v after %v of its holder: nothing but the end of the TTL tells of that", first, signal)
		}
	}
	if v.err() != nil || believed > 0 {
		run.Unsafe("%v; %d looks believed after the stop", v, believed)
	}
}
