//go:build linux

package partitions

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
)

var (
	onStore = flag.String("store", "", "etcd, postgres or sqlite; empty: those of the test")
	ofSeed  = flag.Uint64("seed", 0, "of the faults of a storm; 0: another each time")
	ofFor   = flag.Duration("for", 30*time.Second, "how long a storm lasts")
	many    = flag.Int("many", 2000, "very many partitions")
	logs    = flag.Bool("log", false, "print what the nodes log")
)

// on runs a scenario on stores.
func on(t *testing.T, about string, stores []string, do func(ctx context.Context, r *scene.Run)) {
	if *onStore != "" {
		stores = []string{*onStore}
	}
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			switch store {
			case "etcd":
				etcdtest.Skip(t)
			case "postgres":
				postgrestest.Skip(t)
			}
			if !tier.Nightly() {
				t.Parallel() // they wait, mostly
			}
			s := scene.Scenario{Name: "partitions", About: about, Do: do}
			require.NoError(t, s.Play(t.Context(), &scene.Run{Seed: *ofSeed, Store: store, Out: t.Output(), Short: !tier.Nightly()}))
		})
	}
}

var stores = []string{"etcd", "postgres", "sqlite"}

// report prints how the time went, for ours and for the hash.
func (c *crew) report(ctx context.Context, since time.Duration) {
	c.end(ctx)
	for name, hashed := range map[string]bool{"leases": false, "hash": true} {
		if hashed && !c.beside {
			continue
		}
		a := count(c.terms(hashed, c.set.TTL/2), since)
		c.Figure(name+": two owned one partition", "%d times, for %v in all and %v at most", a.doubles, scene.Short(a.doubled), scene.Short(a.longest))
		c.Figure(name+": none owned it, of all partitions", "%v", scene.Short(a.none))
		c.Spread(name+": gap of a change of owner", a.gaps)
		if !hashed && a.doubles > 0 {
			c.Unsafe("two processes owned one partition %d times", a.doubles)
		}
	}
}

// TestShort is one death, one stop beyond the TTL, and one rolling restart.
func TestShort(t *testing.T) {
	on(t, "3 processes with 64 partitions: one is killed, one is stopped beyond the TTL, all are restarted", []string{"etcd", "sqlite"}, func(ctx context.Context, r *scene.Run) {
		c := newCrew(ctx, r, 3, 1, r.Store == "etcd", settings{Count: 64, TTL: 2 * time.Second, Settle: 2 * time.Second, Look: 10 * time.Millisecond, Log: *logs})
		defer c.close()
		c.owned(ctx, upIn, "the first nodes have their parts", true)
		since := machine.Now()

		c.kill(0)
		r.Figure("all is owned after a kill", "%v", c.owned(ctx, c.set.TTL+slack, "owned after a kill", false))
		c.start(0)
		c.up(ctx)
		c.owned(ctx, upIn, "even after a start", true)

		c.freeze(ctx, 1, c.set.TTL+2*time.Second)
		if owned, _ := c.look(since); r.Store == "etcd" { // a process may be stopped with SQLite's write lock
			r.AtMost("partitions without an owner while one was stopped", float64(c.set.Count-owned), 0, "")
		}
		c.thaw(1)
		c.owned(ctx, c.set.TTL+slack, "owned after a stop", false)
		c.owned(ctx, upIn, "even after a stop", true)

		c.rolling(ctx)
		c.report(ctx, since)
	})
}

// rolling restarts the nodes one after the other.
func (c *crew) rolling(ctx context.Context) time.Duration {
	from := machine.Now()
	for i := range len(c.at) {
		c.stop(ctx, i)
		c.start(i)
		c.up(ctx)
		c.owned(ctx, upIn, "owned after a restart", false)
	}
	c.owned(ctx, upIn, "even after a rolling restart", true)
	return machine.Now() - from
}

// TestStorm has faults of a seed.
func TestStorm(t *testing.T) {
	tier.NightlyOnly(t, "TestShort has one of each fault")
	on(t, "4 to 8 processes with 64 partitions, which are killed, stopped, restarted, join and leave", stores, func(ctx context.Context, r *scene.Run) {
		const least, most = 4, 8
		c := newCrew(ctx, r, least, 3, r.Store == "etcd", settings{Count: 64, TTL: 2 * time.Second, Settle: 2 * time.Second, Look: 10 * time.Millisecond, Log: *logs})
		defer c.close()
		c.owned(ctx, upIn, "the first nodes have their parts", true)
		since, did := machine.Now(), map[string]int{}
		draw := rand.New(rand.NewPCG(r.Seed, 1))
		upTo := func(ttls float64) time.Duration {
			return time.Duration(draw.Float64() * ttls * float64(c.set.TTL))
		}
		var took []time.Duration
		for machine.Now() < since+*ofFor {
			what := []string{"kill", "kill", "stop", "stop", "restart", "rolling", "join", "leave"}[draw.IntN(8)]
			i, wait, calm := draw.IntN(most), upTo(2), draw.IntN(2) == 0
			_, runs := c.at[i]
			switch {
			case what == "rolling":
				for i := range most {
					if _, runs := c.at[i]; runs {
						c.stop(ctx, i)
						c.start(i)
					}
				}
			case !runs:
				what = "join"
				c.start(i)
			case what == "kill":
				c.kill(i)
				scene.Check(machine.Pause(ctx, wait))
				c.start(i)
			case what == "stop":
				c.freeze(ctx, i, 2*wait)
				c.thaw(i)
			case what == "restart":
				c.stop(ctx, i)
				scene.Check(machine.Pause(ctx, wait/4))
				c.start(i)
			case len(c.at) > least:
				c.stop(ctx, i)
			default:
				continue
			}
			did[what]++
			if calm && what != "rolling" { // which may leave no node that is up
				took = append(took, c.owned(ctx, c.set.TTL+slack, "owned after "+what, false))
			}
			c.up(ctx)
		}
		c.owned(ctx, upIn, "even in the end", true)
		r.Figure("faults", "%v", did)
		r.Spread("until all is owned again", took)
		c.report(ctx, since)
	})
}

// TestRollingRestart says how long the restart of all nodes takes, and each partition has no owner.
func TestRollingRestart(t *testing.T) {
	tier.NightlyOnly(t, "TestShort restarts three nodes")
	on(t, "5 processes with 1000 partitions are restarted one after the other", stores, func(ctx context.Context, r *scene.Run) {
		c := newCrew(ctx, r, 5, 1, false, settings{Count: 1000, TTL: 10 * time.Second, Look: 50 * time.Millisecond, Log: *logs})
		defer c.close()
		c.owned(ctx, upIn, "the first nodes have their parts", true)
		since := machine.Now()
		r.Figure("a rolling restart of 5 nodes", "%v", c.rolling(ctx))
		c.moves(ctx, since)
	})
}

// moves prints what moved since, and judges all.
func (c *crew) moves(ctx context.Context, since time.Duration) {
	a := count(c.end(ctx), since)
	c.Figure("changes of owner", "%d of %d partitions; from the first to the last %v", len(a.gaps), c.set.Count, scene.Short(a.last-a.first))
	c.Spread("gap of a partition", a.gaps)
}

// TestJoin says how long a node takes to get its part of very many partitions.
func TestJoin(t *testing.T) {
	tier.NightlyOnly(t, "TestShort starts nodes")
	for _, nodes := range []int{1, 3} {
		for _, prepare := range []time.Duration{0, 200 * ms} {
			t.Run(fmt.Sprint(nodes, " nodes, Prepare of ", prepare), func(t *testing.T) {
				on(t, "a process joins others with very many partitions", []string{"etcd"}, func(ctx context.Context, r *scene.Run) {
					c := newCrew(ctx, r, nodes, 1, false, settings{Count: *many, TTL: 10 * time.Second, Prepare: prepare, Log: *logs})
					defer c.close()
					r.Figure("all is owned", "%v after all nodes were up", c.owned(ctx, 5*upIn, "the first nodes have their parts", true))
					scene.Check(machine.Pause(ctx, 5*time.Second)) // Settle: then they are nodes as any
					since, before := machine.Now(), c.asked(ctx)
					c.start(nodes)
					c.up(ctx)
					used := c.figures(ctx)
					r.Figure("it has its part", "%v after it was up", c.owned(ctx, 5*upIn, "the new node has its part", true))
					for i, x := range c.figures(ctx) {
						r.Figure(fmt.Sprint("processor time of node ", i), "%v", x.Processor-used[i].Processor)
					}
					r.Figure("requests meanwhile", "%.0f", c.asked(ctx)-before)
					c.moves(ctx, since)
				})
			})
		}
	}
}

// TestIdle says what partitions cost while nothing changes.
func TestIdle(t *testing.T) {
	tier.NightlyOnly(t, "it measures only")
	on(t, "very many partitions of 2 processes, idle", []string{"etcd"}, func(ctx context.Context, r *scene.Run) {
		memory := map[int][]uint64{}
		for _, n := range []int{1, *many} {
			c := newCrew(ctx, r, 2, 1, false, settings{Count: n, TTL: 10 * time.Second, Log: *logs})
			scene.Check(scene.Try(func() {
				defer c.close()
				c.owned(ctx, 5*upIn, "they have their parts", true)
				scene.Check(machine.Pause(ctx, 10*time.Second))
				from, before, asked := time.Now(), c.figures(ctx), c.asked(ctx)
				scene.Check(machine.Pause(ctx, 30*time.Second))
				asked, after := c.asked(ctx)-asked, c.figures(ctx)
				took := time.Since(from)
				r.Figure(fmt.Sprint("requests a second, ", n, " partitions"), "%.2f", asked/took.Seconds())
				for i, x := range after {
					memory[n] = append(memory[n], x.Heap+x.Stacks)
					r.Figure(fmt.Sprint("node ", i), "owns %d; %d KiB of heap, %d of stacks, %d goroutines; %v of processor time in %v", x.Owned,
						x.Heap>>10, x.Stacks>>10, x.Goroutines, x.Processor-before[i].Processor, scene.Short(took))
				}
			}))
		}
		for i := range memory[1] {
			r.Figure(fmt.Sprint("memory for each partition, node ", i), "%.1f KiB", float64(memory[*many][i]-memory[1][i])/float64(*many)/1024)
		}
	})
}
