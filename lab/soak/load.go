//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// Of a run of load.
const (
	loadNodes  = 4 // the first is restarted at times, the others live on
	loadShards = 64
	loadEach   = 128 // entities of each shard
	loadIdle   = 2 * time.Second
	loadRoom   = 0.65 // entities that may run, of those asked in that time: enough unless a node is drained
	loadNames  = 2    // singletons
	weighEvery = 10 * time.Second
	moveEvery  = 20 * time.Second
	loadMost   = 20_000_000 // asks, all of which are judged in memory
	weighings  = 40         // in a run, at least
)

// loadCheck has nodes work for long while entities come and go and everything moves
// at times, and looks for what grows.
func loadCheck(ctx context.Context, args []string, r *report) error {
	var length time.Duration
	var rate float64
	var seed uint64
	var leaks string
	if err := flags("load", args, func(f *flag.FlagSet) {
		f.DurationVar(&length, "for", 30*time.Minute, "length of the load")
		f.Float64Var(&rate, "rate", 800, "asks a second, of all nodes together")
		f.Uint64Var(&seed, "seed", 0, "of the moves, and of what is asked of whom; 0: any")
		f.StringVar(&leaks, "leaks", "", "what each entity that starts leaks, to see it found: goroutines, heap, or both")
	}); err != nil {
		return err
	}
	if length < 10*time.Second || rate < 100 || rate > 20000 || rate*length.Seconds() > loadMost {
		return fmt.Errorf("load: -for must be at least 10s, -rate 100 to 20000, both together at most %d asks", loadMost)
	}
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	b, err := newBed(ctx, r)
	if err != nil {
		return err
	}
	defer b.close()
	set := shardSettings{Shards: loadShards, Each: loadEach, Hosts: loadNodes, Idle: loadIdle, Leaks: leaks,
		MaxActive: max(20, int(loadRoom*rate*loadIdle.Seconds()/loadNodes))}
	// Three entries an ask, all on one node at the worst; the file is sparse.
	room := int(3*rate*(length.Seconds()+120)) + 100000
	c, err := newCluster(ctx, b, loadNodes, room, settings{TTL: 10 * time.Second, Names: loadNames, Follows: true,
		Weigh: min(weighEvery, length/weighings), Seed: seed, Shard: &set})
	if err != nil {
		return err
	}
	defer c.end()
	w := &loading{length: length, random: rand.New(rand.NewPCG(seed, 0)), made: map[moveKind]int{},
		rollover: rollover{shardView: newShardView(c, loadShards), rate: rate, hosts: loadNodes, sent: map[uint32]uint64{}}}
	r.printf("       seed %d", seed)
	if err := w.run(ctx); err != nil {
		return err
	}
	return w.judge(r, set)
}

// moveKind is what is moved on purpose.
type moveKind string

const (
	drained   moveKind = "drains"     // a node gives all its shards up, and takes its part again
	restarted moveKind = "restarts"   // the first node leaves, another process takes its place
	led       moveKind = "hand-overs" // the singletons go to another node
)

// loading is a run of load.
type loading struct {
	rollover
	length time.Duration
	random *rand.Rand

	all     []int // nodes
	leader  int
	planned int
	made    map[moveKind]int
	lives   []*process // all that there were, but for the last of each node
	rest    []weight   // of the nodes, when nothing had been asked for a while
}

func (w *loading) run(ctx context.Context) (err error) {
	if w.all, err = w.begin(ctx); err != nil {
		return err
	}
	if err := w.lead(ctx, w.leader); err != nil {
		return err
	}
	every := min(moveEvery, w.length/8)
	var deck []moveKind
	for at := w.began + every/2; at+every/2 <= w.began+w.length && w.stuck == nil; at += every {
		if err := lab.Pause(ctx, at-lab.Now()); err != nil {
			return err
		}
		if len(deck) == 0 {
			deck = []moveKind{drained, drained, drained, led, led, restarted}
			w.random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		w.planned++
		err := w.move(ctx, deck[0], every/4)
		switch {
		case errors.Is(err, errNever):
			w.stuck = fmt.Errorf("%s: %w", deck[0], err)
		case err != nil:
			return err
		default:
			w.made[deck[0]]++
		}
		deck = deck[1:]
	}
	if w.stuck == nil {
		if err := lab.Pause(ctx, w.began+w.length-lab.Now()); err != nil {
			return err
		}
	}
	if err := w.finish(ctx); err != nil {
		return err
	}
	return w.idle(ctx)
}

// idle weighs the nodes when all entities must have been stopped.
func (w *loading) idle(ctx context.Context) error {
	if err := lab.Pause(ctx, 2*loadIdle); err != nil {
		return err
	}
	got, err := w.cluster.all(ctx, order{Do: doWeigh}, hasWeight)
	for _, s := range got {
		w.rest = append(w.rest, s.Weight)
	}
	return err
}

func (w *loading) move(ctx context.Context, kind moveKind, hold time.Duration) error {
	switch kind {
	case drained:
		return w.drain(ctx, w.random.IntN(loadNodes), hold)
	case led:
		return w.handOver(ctx)
	}
	if w.leader == 0 {
		if err := w.handOver(ctx); err != nil {
			return err
		}
	}
	w.lives = append(w.lives, w.cluster.nodes[0])
	return w.restart(ctx, 0, w.all)
}

// handOver moves the singletons to a node that does not have them.
func (w *loading) handOver(ctx context.Context) error {
	w.leader = (w.leader + 1 + w.random.IntN(loadNodes-1)) % loadNodes
	at := lab.Now()
	err := w.lead(ctx, w.leader)
	w.moves = append(w.moves, span{at, lab.Now()})
	return err
}

// drain has a node give up its shards, for a while.
func (w *loading) drain(ctx context.Context, i int, hold time.Duration) error {
	at := lab.Now()
	p := w.cluster.nodes[i]
	if err := p.tell(order{Do: doDrain}); err != nil {
		return err
	}
	_, err := p.await(ctx, at, patience, hasDrained, func(r said) bool { return r.What == hasDrained })
	if err == nil {
		_, err = w.settled(ctx, patience, 0, slices.DeleteFunc(slices.Clone(w.all), func(x int) bool { return x == i })...)
	}
	w.moves = append(w.moves, span{at, lab.Now()})
	if err != nil {
		return err
	}
	if err := lab.Pause(ctx, hold); err != nil {
		return err
	}
	at = lab.Now()
	if err := p.tell(order{Do: doUndrain}); err != nil {
		return err
	}
	_, err = w.settled(ctx, patience, 0, w.all...)
	w.moves = append(w.moves, span{at, lab.Now()})
	return err
}

// series is what each process told of itself, under load.
func (w *loading) series() (all []series) {
	for i, p := range append(slices.Clone(w.lives), w.cluster.nodes...) {
		s := series{id: p.id}
		if p.id == w.cluster.nodes[0].id {
			s.id += fmt.Sprintf(".%d", i)
		}
		for _, r := range p.Said() {
			if r.What == hasWeight && r.At < w.end {
				s.samples = append(s.samples, sample{r.At, r.Weight})
			}
		}
		all = append(all, s)
	}
	return all
}

// errNothing: a run that was too quiet, or too short-lived, to say anything.
var errNothing = errors.New("nothing was judged")

func (w *loading) judge(r *report, set shardSettings) error {
	es, err := w.evidence()
	if err != nil {
		return err
	}
	made := 0
	for _, n := range w.made {
		made += n
	}
	var passivated, handedOff int64
	for _, x := range w.weights { // of each process, when its load ended
		passivated += x.Passivated
		handedOff += x.HandedOff
	}
	r.printf("       %d nodes, %d shards, %d entities that are stopped when idle for %v, at most %d of them on a node, %d singletons",
		loadNodes, set.Shards, set.Shards*set.Each, set.Idle, set.MaxActive, loadNames)
	r.printf("       %d drains, %d restarts, %d hand-overs of the singletons; %d shards handed off, %d entities stopped for idleness or room",
		w.made[drained], w.made[restarted], w.made[led], handedOff, passivated)
	all := w.series()
	g := judgeGrowth(all, span{w.began + w.length/10, w.end}, w.length/10)
	g.print(r, all)
	w.judgeMail(r, es, "move", w.planned-made)
	g.judge(r)
	entries := 0
	for _, x := range w.rest {
		entries += x.Entries + x.Active
	}
	r.atMost(fmt.Sprintf("entities kept or running %v after the load", 2*loadIdle), float64(entries), 0, "")
	return worth(made, passivated, len(g.judged))
}

// worth is errNothing unless there was something to judge.
func worth(moves int, stopped int64, lived int) error {
	if moves == 0 || stopped == 0 || lived < loadNodes-1 {
		return fmt.Errorf("%w: %d moves, %d entities stopped, %d processes that lived long enough: must be 1, 1 and %d",
			errNothing, moves, stopped, lived, loadNodes-1)
	}
	return nil
}
