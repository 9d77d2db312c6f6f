//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/sharding/etcdstore"
	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// rememberedBound is how long it may take, beside the TTL, until all entities run after
// the last node of a new number has started.
const rememberedBound = 5 * time.Second

// numbersKey is where the numbers of shards stand that lists of remembered entities
// are for.
const numbersKey = etcdstore.DefaultPrefix + "layout/soak/entity/"

// reshard changes the number of shards of a type whose entities are remembered.
func reshard(ctx context.Context, args []string, r *report) error {
	var nodes, entities int
	var ttl time.Duration
	var list string
	if err := flags("reshard", args, func(f *flag.FlagSet) {
		f.IntVar(&entities, "entities", 400, "remembered entities")
		f.IntVar(&nodes, "nodes", 3, "processes")
		f.DurationVar(&ttl, "ttl", 2*time.Second, "TTL")
		f.StringVar(&list, "changes", "8,32,16,2", "numbers of shards, one after the other")
	}); err != nil {
		return err
	}
	var numbers []int
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 1000 || len(numbers) > 0 && numbers[len(numbers)-1] == n {
			return fmt.Errorf("reshard: -changes: %q, must be numbers from 1 to 1000, each another than the one before", s)
		}
		numbers = append(numbers, n)
	}
	if nodes < 2 || nodes > nodesPerLife || entities < 1 || entities > 10000 || ttl < 2*time.Second || len(numbers) < 2 {
		return errors.New("reshard: -nodes must be 2 to 10, -entities 1 to 10000, -ttl at least 2s, -changes two numbers or more")
	}
	b, err := newBed(ctx, r)
	if err != nil {
		return err
	}
	defer b.close()
	client, err := b.direct()
	if err != nil {
		return err
	}
	x := &resharding{r: r, ttl: ttl, entities: entities, client: client, ends: map[life]time.Duration{}}
	c, err := newCluster(ctx, b, nodes, 400*entities+10000, settings{TTL: ttl, Shard: x.set(numbers[0])})
	if err != nil {
		return err
	}
	defer c.end()
	x.shardView = newShardView(c, numbers[0])
	if err := x.begin(ctx); err != nil {
		return err
	}
	for _, n := range numbers[1:] {
		if err := x.change(ctx, n); err != nil {
			return err
		}
	}
	return x.judge(len(numbers) - 1)
}

// resharding is a run of reshard.
type resharding struct {
	*shardView
	r        *report
	ttl      time.Duration
	entities int
	shards   int // at present
	client   *clientv3.Client

	epochs      []epoch                // of each number but the present one
	began       time.Duration          // of the present one
	ends        map[life]time.Duration // of processes
	interrupted int                    // kills that left two numbers
	took        []time.Duration        // until all ran again
	missing     int                    // entities that did not
}

// set is what the nodes that are started from now on have in common.
func (x *resharding) set(shards int) *shardSettings {
	x.shards = shards
	return &shardSettings{Shards: shards, Remembered: x.entities, Hosts: nodesPerLife}
}

// begin has every entity run, and be remembered.
func (x *resharding) begin(ctx context.Context) error {
	x.began = lab.Now()
	if _, err := x.takePart(ctx, x.everybody()...); err != nil {
		return err
	}
	if _, err := x.hosted(ctx, patience); err != nil {
		return err
	}
	if err := x.nodes[0].tell(order{Do: doLoad, Rate: float64(2 * x.entities)}); err != nil {
		return err
	}
	if err := x.allRun(ctx); err != nil {
		return err
	}
	_, err := x.quietOf(ctx, 0)
	return err
}

func (x *resharding) everybody() (all []int) {
	for i := range x.nodes {
		all = append(all, i)
	}
	return all
}

// change ends all nodes and starts them with another number; who begins to move what
// is remembered is killed meanwhile.
func (x *resharding) change(ctx context.Context, shards int) error {
	for i := range x.nodes {
		if _, err := x.leave(ctx, i); err != nil {
			return err
		}
		x.ends[life{i, len(x.journals[i]) - 1}] = lab.Now()
	}
	x.refresh()
	x.epochs = append(x.epochs, epoch{x.shards, x.began, lab.Now()})
	x.began = lab.Now()
	was := x.shards
	x.settings.Shard = x.set(shards)
	x.homes, x.boss.hosted = make([]home, shards), false
	for i := range x.nodes {
		if err := x.start(ctx, i); err != nil {
			return err
		}
	}
	began, err := x.revision(ctx)
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	moves := x.client.Watch(watching, numbersKey+strconv.Itoa(shards), clientv3.WithRev(began+1))
	for _, p := range x.nodes {
		if err := p.tell(order{Do: doHost}); err != nil {
			return err
		}
	}
	select {
	case <-moves: // both numbers stand: ids are about to be moved
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(patience):
		return fmt.Errorf("from %d to %d shards: nobody began to move what is remembered: %w within %v", was, shards, errNever, patience)
	}
	x.refresh()
	dies, at := x.boss.node, lab.Now()
	if err := x.nodes[dies].kill(); err != nil {
		return err
	}
	x.ends[life{dies, len(x.journals[dies]) - 1}] = lab.Now()
	x.died(dies)
	stands, err := x.client.Get(ctx, numbersKey, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	in := stands.Count > 2 // the mark, and two numbers
	x.interrupted += count(in)
	if err := x.start(ctx, dies); err != nil {
		return err
	}
	last, err := x.takePart(ctx, dies)
	if err != nil {
		return err
	}
	if _, err := x.each(ctx, 0, isHosting); err != nil {
		return err
	}
	err = x.allRun(ctx)
	if err != nil && !errors.Is(err, errNever) {
		return err
	}
	x.took = append(x.took, lab.Now()-max(last, at))
	x.r.printf("       %d to %d shards; node-%d, which moved what is remembered, was killed (in the middle: %v): %d of %d entities run after %v",
		was, shards, dies, in, x.entities-x.absent(), x.entities, short(x.took[len(x.took)-1]))
	x.missing += x.absent()
	return lab.Pause(ctx, stillFor) // somebody else might come
}

// revision is etcd's present revision.
func (x *resharding) revision(ctx context.Context) (int64, error) {
	got, err := x.client.Get(ctx, numbersKey, clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return got.Header.Revision, nil
}

// allRun waits until every entity runs.
func (x *resharding) allRun(ctx context.Context) error {
	return x.shardView.until(ctx, x.ttl+10*rememberedBound, "all remembered entities run", func() bool { return x.absent() == 0 })
}

// absent is how many entities do not run.
func (x *resharding) absent() int {
	es, err := x.existences()
	if err != nil {
		return x.entities
	}
	run := map[uint32]bool{}
	for _, l := range es {
		if l.to == 0 {
			run[l.entity] = true
		}
	}
	return x.entities - len(run)
}

// existences are those of all processes.
func (x *resharding) existences() (all []existence, err error) {
	for i, js := range x.journals {
		for k, j := range js {
			entries, err := j.Read()
			if err != nil {
				return nil, err
			}
			all = append(all, existences(life{i, k}, entries, x.ends[life{i, k}])...)
		}
	}
	return all, nil
}

func (x *resharding) judge(changes int) error {
	lives, err := x.existences()
	if err != nil {
		return err
	}
	x.epochs = append(x.epochs, epoch{x.shards, x.began, lab.Now()})
	r := x.r
	r.printf("       %d entities, %d nodes, TTL %v: they began %d times", x.entities, len(x.nodes), x.ttl, len(lives))
	r.spread("last node's start until all remembered entities run", x.took)
	r.within("longest until all remembered entities run", lab.Percentile(x.took, 100), x.ttl+rememberedBound)
	r.atMost("changes of the number that were not interrupted", float64(changes-x.interrupted), float64(changes-1), "")
	r.atMost("remembered entities that did not run again", float64(x.missing), 0, "")
	r.atMost("entities that ran in two places", float64(twice(lives)), 0, "")
	r.atMost("entities that ran in a shard which is not theirs", float64(elsewhere(lives, x.epochs)), 0, "")
	r.atMost("changes that did not come to an end", float64(changes-len(x.took)), 0, "")
	return nil
}
