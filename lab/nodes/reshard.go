//go:build linux

package nodes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/etcdstore"
)

// rememberedBound is how long it may take, beside the TTL, until all accounts run after
// the last node of a new number has started.
const rememberedBound = 5 * time.Second

// numbersKey is where the numbers of shards stand that lists of remembered accounts are for.
const numbersKey = etcdstore.DefaultPrefix + "layout/lab/account/"

// resharding is a run of reshard.
type resharding struct {
	*crew
	client *clientv3.Client

	epochs      []epoch // of each number but the present one
	began       time.Duration
	ends        map[[2]int]time.Duration // of processes: node, life
	took        []time.Duration          // until all ran again
	interrupted int                      // kills that left two numbers
	missing     int                      // accounts that did not run again
}

// reshard changes the number of shards of a type whose accounts are remembered while no node runs it,
// several times. Whoever moves what is remembered is killed in the middle.
func reshard(ctx context.Context, r *scene.Run) {
	nodes, accounts, numbers := 3, 400, []int{8, 32, 16, 2}
	if r.Short {
		nodes, accounts, numbers = 2, 120, []int{8, 32, 2}
	}
	c := newLocal(ctx, r, nodes, settings{TTL: 2 * time.Second, Names: names{Shards: numbers[0], Accounts: accounts}, Remember: true})
	defer c.end()
	x := &resharding{crew: c, client: scene.Must(c.onEtcd().NewClient()), ends: map[[2]int]time.Duration{}, began: machine.Now()}
	defer x.client.Close()
	c.up(ctx, upTo(nodes)...)
	c.order(ctx, order{Do: doWake, Within: time.Second}, patience, 0)
	for _, n := range numbers[1:] {
		x.change(ctx, n)
	}
	x.epochs = append(x.epochs, epoch{c.settings.Names.Shards, span{x.began, machine.Now()}})
	all := x.existences()
	r.Spread("last node's start until all remembered accounts run", x.took)
	r.Within("longest until all remembered accounts run", slices.Max(x.took), c.settings.TTL+rememberedBound)
	r.AtMost("changes of the number that were not interrupted", float64(len(x.took)-x.interrupted), float64(len(x.took)-1), "")
	r.AtMost("remembered accounts that did not run again", float64(x.missing), 0, "")
	r.None("accounts that ran in two places", twice(all))
	r.None("accounts that ran in a shard that is not theirs", elsewhere(all, x.epochs))
	c.judged(func(ev *evidence) { ev.names.Shards = slices.Max(numbers) })
}

// change ends all nodes and starts them with another number; who begins to move what
// is remembered is killed meanwhile.
func (x *resharding) change(ctx context.Context, shards int) {
	nodes := x.all()
	for _, i := range nodes {
		life := x.slots[i].life
		scene.Check(x.leaveBy(x.slots[i], patience))
		x.ends[[2]int{i, life}] = machine.Now()
	}
	was, old := x.settings.Names.Shards, uint64(0)
	x.epochs, x.began = append(x.epochs, epoch{was, span{x.began, machine.Now()}}), machine.Now()
	x.settings.Names.Shards = shards
	x.look(func(v *view) { v.homes, old = map[uint16]home{}, v.boss.token })
	now := scene.Must(x.client.Get(ctx, numbersKey, clientv3.WithCountOnly()))
	watching, stop := context.WithCancel(ctx)
	defer stop()
	moves := x.client.Watch(watching, numbersKey+strconv.Itoa(shards), clientv3.WithRev(now.Header.Revision+1))
	for _, i := range nodes {
		scene.Check(x.start(i))
	}
	select {
	case <-moves: // both numbers stand: ids are about to be moved
	case <-ctx.Done():
		scene.Check(context.Cause(ctx))
	case <-time.After(patience):
		scene.Check(fmt.Errorf("from %d to %d shards: nobody began to move what is remembered: %w within %v", was, shards, machine.ErrNever, patience))
	}
	x.until(ctx, patience, "a node coordinates", func() (is bool) {
		x.look(func(v *view) { is = v.boss.token > old })
		return is
	})
	dies, at := x.pick(coordinator, rand.New(rand.NewPCG(1, 1))), machine.Now()
	life := x.slots[dies].life
	scene.Check(x.kill(x.slots[dies]))
	x.ends[[2]int{dies, life}] = machine.Now()
	stands := scene.Must(x.client.Get(ctx, numbersKey, clientv3.WithPrefix(), clientv3.WithCountOnly()))
	in := stands.Count > 2 // the mark, and two numbers
	if in {
		x.interrupted++
	}
	x.up(ctx, nodes...)
	last := scene.Must(x.awaitUp(ctx, dies))
	if err := scene.Try(func() {
		x.until(ctx, x.settings.TTL+10*rememberedBound, "all remembered accounts run", func() bool { return x.absent() == 0 })
	}); err != nil {
		x.Printf("   %v", err)
	}
	x.took = append(x.took, machine.Now()-max(last.At, at))
	x.missing += x.absent()
	x.Printf("   %d to %d shards; node-%d, which moved what is remembered, was killed (in the middle: %v): all but %d accounts run after %v",
		was, shards, dies, in, x.absent(), scene.Short(x.took[len(x.took)-1]))
	scene.Check(machine.Pause(ctx, stillFor)) // somebody else might come
}

// absent is how many accounts do not run.
func (x *resharding) absent() int {
	run := map[uint16]bool{}
	for _, e := range x.existences() {
		if e.to == 0 {
			run[e.target] = true
		}
	}
	return x.settings.Names.Accounts - len(run)
}

// existence is an account's on a node, from its start to its end, or to the process's.
type existence struct {
	target uint16
	shard  int
	span   // to is 0 while it runs
}

// existences are those of all processes.
func (x *resharding) existences() []existence { return existences(x.evidence(), x.ends) }

// existences are all that was noted; ends is when processes did.
func existences(es []seen, ends map[[2]int]time.Duration) (out []existence) {
	type where struct {
		node, life int
		target     uint16
	}
	runs := map[where]int{}
	for _, e := range es {
		w := where{e.node, e.life, e.target}
		switch e.kind {
		case began:
			runs[w] = len(out)
			out = append(out, existence{e.target, int(e.name), span{e.at, ends[[2]int{e.node, e.life}]}})
		case ended:
			if i, ok := runs[w]; ok {
				out[i].to = e.at
				delete(runs, w)
			}
		}
	}
	return out
}

// twice is how many accounts ran in two places at a time.
func twice(all []existence) (n int) {
	by := map[uint16][]existence{}
	for _, x := range all {
		by[x.target] = append(by[x.target], x)
	}
	for _, xs := range by {
		slices.SortFunc(xs, func(a, b existence) int { return int(a.from - b.from) })
		over := false
		for i, x := range xs {
			for _, before := range xs[:i] {
				over = over || before.to == 0 || x.from < before.to
			}
		}
		if over {
			n++
		}
	}
	return n
}

// epoch is the time in which there was one number of shards.
type epoch struct {
	shards int
	span
}

// elsewhere is how many times an account began in a shard that was not its own then.
func elsewhere(all []existence, epochs []epoch) (n int) {
	for _, x := range all {
		for _, e := range epochs {
			if e.has(x.from) && sharding.ShardOf(accountID(int(x.target)), e.shards) != x.shard {
				n++
			}
		}
	}
	return n
}
