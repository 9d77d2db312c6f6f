//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"time"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// backBound is how long it may take, beside the TTL, until all of a killed node's
// shards answer again.
const backBound = 2 * time.Second

// shardKills ends one of the processes that host shards, again and again.
func shardKills(ctx context.Context, args []string, r *report) error {
	var n, nodes, shards int
	var rate float64
	var ttl time.Duration
	if err := flags("shardkills", args, func(f *flag.FlagSet) {
		f.IntVar(&n, "n", 10, "kills")
		f.IntVar(&nodes, "nodes", 4, "processes")
		f.IntVar(&shards, "shards", 256, "shards")
		f.Float64Var(&rate, "rate", 2000, "asks a second, of all nodes together")
		f.DurationVar(&ttl, "ttl", 2*time.Second, "TTL")
	}); err != nil {
		return err
	}
	if n < 1 || n > 1000 || nodes < 2 || nodes > nodesPerLife || shards < nodes || shards > 10000 || rate < 100 || rate > 100000 || ttl < 2*time.Second {
		return errors.New("shardkills: -n must be 1 to 1000, -nodes 2 to 10, -shards -nodes to 10000, -rate 100 to 100000, -ttl at least 2s")
	}
	b, err := newBed(ctx, r)
	if err != nil {
		return err
	}
	defer b.close()
	room := int(3*rate*(60+float64(n)*(30+ttl.Seconds()))) + 10*shards*nodes*(n+1) + 100000
	c, err := newCluster(ctx, b, nodes, room, settings{TTL: ttl, Shard: &shardSettings{Shards: shards, Each: max(1, 512/shards), Hosts: nodes}})
	if err != nil {
		return err
	}
	defer c.end()
	k := &shardKilling{shardView: newShardView(c, shards), ttl: ttl, rate: rate / float64(nodes)}
	if err := k.run(ctx, n); err != nil {
		return err
	}
	return k.judge(r, n)
}

// death is a kill of a node that hosted shards.
type death struct {
	at     time.Duration
	node   int
	boss   bool // it coordinated
	shards []int
}

// shardKilling is a run of shardkills.
type shardKilling struct {
	*shardView
	ttl  time.Duration
	rate float64 // of each node

	deaths []death
	back   []time.Duration // until every survivor had an answer of every shard
	healed []time.Duration // until the new process had, too
	even   []time.Duration // until it had its part
	stuck  []error
}

func (k *shardKilling) run(ctx context.Context, n int) error {
	var all []int
	for i := range k.nodes {
		all = append(all, i)
	}
	if _, err := k.takePart(ctx, all...); err != nil {
		return err
	}
	if _, err := k.settled(ctx, patience, 0, all...); err != nil {
		return err
	}
	if _, err := k.sweepOf(ctx, patience, all...); err != nil {
		return err
	}
	for _, p := range k.nodes {
		if err := p.tell(order{Do: doLoad, Rate: k.rate}); err != nil {
			return err
		}
	}
	for len(k.back) < n && len(k.stuck) == 0 {
		if err := lab.Pause(ctx, k.ttl/2+time.Duration(mrand.Int64N(int64(k.ttl/2)))); err != nil {
			return err
		}
		err := k.kill(ctx, mrand.IntN(len(k.nodes)), all)
		if errors.Is(err, errNever) {
			k.stuck = append(k.stuck, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// kill ends a node's process, starts another in its place, and waits until all
// shards answer all nodes, and the new process has its part of them.
func (k *shardKilling) kill(ctx context.Context, i int, all []int) error {
	k.refresh()
	at, most := lab.Now(), 5*k.ttl+10*time.Second
	d := death{at: at, node: i, boss: k.boss.node == i}
	for s, h := range k.homes {
		if h.hosted && h.node == i {
			d.shards = append(d.shards, s)
		}
	}
	k.deaths = append(k.deaths, d)
	if err := k.nodes[i].kill(); err != nil {
		return err
	}
	k.died(i)
	survivors := slices.DeleteFunc(slices.Clone(all), func(x int) bool { return x == i })
	swept := make(chan error, 1)
	var times []time.Duration
	go func() {
		var err error
		times, err = k.sweepOf(ctx, most, survivors...)
		swept <- err
	}()
	err := k.replace(ctx, i)
	if err := errors.Join(<-swept, err); err != nil {
		return fmt.Errorf("kill of node-%d: %w", i, err)
	}
	k.back = append(k.back, slices.Max(times)-at)
	if times, err = k.sweepOf(ctx, most, i); err != nil {
		return fmt.Errorf("after the kill of node-%d: %w", i, err)
	}
	k.healed = append(k.healed, times[0]-at)
	since, err := k.settled(ctx, most, 0, all...)
	if err != nil {
		return err
	}
	k.even = append(k.even, since-at)
	return nil
}

// replace starts another process in place of one.
func (k *shardKilling) replace(ctx context.Context, i int) error {
	if err := k.start(ctx, i); err != nil {
		return err
	}
	if _, err := k.takePart(ctx, i); err != nil {
		return err
	}
	return k.nodes[i].tell(order{Do: doLoad, Rate: k.rate})
}

func (k *shardKilling) judge(r *report, n int) error {
	es, err := k.evidence()
	if err != nil {
		return err
	}
	passes, got := only(es, passed), only(es, handled)
	r.printf("       %d nodes, %d shards, TTL %v, %.0f asks a second besides the sweeps; %d messages passed the gates",
		len(k.nodes), len(k.homes), k.ttl, k.rate*float64(len(k.nodes)), len(passes))
	rehosted := judgeDeaths(es, k.deaths)
	for i, d := range k.deaths {
		which := ""
		if d.boss {
			which = ", which coordinated"
		}
		if i < len(k.back) {
			r.printf("       node-%d%s: %d shards, all hosted after %v, all answer the survivors after %v", d.node, which, len(d.shards), short(rehosted[i]), short(k.back[i]))
		}
	}
	for _, err := range k.stuck {
		r.printf("       %v", err)
	}
	r.spread("kill to all its shards hosted", rehosted)
	r.spread("kill to all answers at every survivor", k.back)
	r.spread("kill to all answers at the new process", k.healed)
	r.spread("kill to the new process's part", k.even)
	r.atMost("kills that were not made, or not got over", float64(n-len(k.even)), 0, "")
	r.within("longest from a kill to all answers at every survivor", lab.Percentile(k.back, 100), k.ttl+backBound)
	r.atMost("passes that overlap another token's or host's", float64(overlaps(passes)), 0, "")
	r.atMost("messages handled that overlap another token's or host's", float64(overlaps(got)), 0, "")
	return nil
}
