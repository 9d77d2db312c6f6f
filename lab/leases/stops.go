//go:build linux

package leases

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/backends/open"
	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
)

// contending is what a process that contends for names is told.
type contending struct {
	ID, URL string
	Names   []string
	TTL     time.Duration
}

// contender contends for names, and prints each tenure when it begins and when it is over.
func contender(arg json.RawMessage) error {
	var c contending
	if err := json.Unmarshal(arg, &c); err != nil {
		return err
	}
	ctx, cancel := untilTold()
	defer cancel()
	store, closeStore, err := open.Open(ctx, c.URL)
	if err != nil {
		return err
	}
	k, err := newKeeper(store, c.ID, c.TTL)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	j := &journal{tell: func(e tenure) { _ = out.Encode(e) }} // an error: no reader is left
	var all sync.WaitGroup
	for _, name := range c.Names {
		h, err := k.Lease(name)
		if err != nil {
			return err
		}
		all.Go(func() { j.contend(ctx, c.ID, h, 0) })
	}
	all.Wait()
	return errors.Join(k.Close(context.Background()), closeStore())
}

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

// stops has processes that contend for names stopped (SIGSTOP) for three TTLs, one after the other,
// and go on. The others take what it held, and it must notice before its first look believes.
func stops(ctx context.Context, run *scene.Run) error {
	rounds, ttl, processes := 40, 2*time.Second, 4
	if run.Short {
		rounds, ttl, processes = 1, time.Second, 2
	}
	b, err := newBed(ctx, storeOf(run), ttl)
	if err != nil {
		return err
	}
	defer b.close()
	if b.place, err = lab.NewPlace(false); err != nil {
		return err
	}
	names := make([]string, 10)
	for i := range names {
		names[i] = fmt.Sprint("stops/", i)
	}
	var all crew
	for i := range processes {
		id := fmt.Sprint("process-", i)
		p, err := start[tenure](b.place, "contender", id, contending{id, b.address(), names, ttl})
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	rng := rand.New(rand.NewPCG(run.Seed, 0))
	taken, believed := 0, 0
	for range rounds {
		if _, err := await(ctx, 0, time.Minute, "all names are held", func() bool { return len(all.holders()) == len(names) }); err != nil {
			return err
		}
		if err := lab.Pause(ctx, upTo(rng, ttl/2)); err != nil { // anywhere between renewals
			return err
		}
		before, victim := all.holders(), all[rng.IntN(len(all))]
		for i := 0; !slices.ContainsFunc(slices.Collect(maps.Values(before)), func(e tenure) bool { return e.Node == victim.ID }); i++ {
			if i == 1000 {
				return errors.New("no process holds a name")
			}
			before, victim = all.holders(), all[rng.IntN(len(all))]
			_ = lab.Pause(ctx, 5*time.Millisecond)
		}
		stopped := lab.Now()
		if err := victim.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		if err := lab.Pause(ctx, 3*ttl); err != nil {
			return err
		}
		during, resumed := all.holders(), lab.Now()
		if err := victim.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		held := 0
		for name, e := range before {
			if e.Node != victim.ID {
				continue
			}
			held++
			if other := during[name]; other.Node == victim.ID {
				run.Violation("no other process held %s %v after its holder was stopped", name, 3*ttl)
			}
		}
		if _, err := await(ctx, 0, time.Minute, victim.ID+" notices", func() bool {
			return !slices.ContainsFunc(all.all(), func(e tenure) bool { return e.Node == victim.ID && e.First < stopped && !e.Over })
		}); err != nil {
			return err
		}
		for _, e := range all.all() {
			if e.Node == victim.ID && e.First < stopped && e.Last >= resumed {
				believed++
			}
		}
		taken += held
	}
	for _, p := range all {
		err = errors.Join(err, p.Tell("end"))
	}
	for _, p := range all {
		<-p.Done()
		err = cmp.Or(err, p.Err())
	}
	if err != nil {
		return err
	}
	v := judge(all.all())
	run.Figure("stops of 3 TTLs; names that were taken over", "%d, TTL %v, %d processes; %d", rounds, ttl, processes, taken)
	run.Figure("all terms", "%v", v)
	if v.err() != nil || believed > 0 {
		run.Unsafe("%v; %d looks believed after the stop", v, believed)
	}
	return nil
}
