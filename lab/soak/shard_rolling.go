//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"time"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// The client asks four fifths of the load: a node that hosts nothing, and stays.
const clientShare = 0.8

// rolling restarts all nodes, one after the other, under load.
func rolling(ctx context.Context, args []string, r *report) error {
	var rounds, nodes, shards int
	var rate float64
	if err := flags("rolling", args, func(f *flag.FlagSet) {
		f.IntVar(&rounds, "n", 1, "times that every node is restarted")
		f.IntVar(&nodes, "nodes", 4, "processes that host; one more asks only")
		f.IntVar(&shards, "shards", 256, "shards")
		f.Float64Var(&rate, "rate", 5000, "asks a second, of all nodes together")
	}); err != nil {
		return err
	}
	if rounds < 1 || rounds > 100 || nodes < 2 || nodes >= nodesPerLife || shards < nodes || shards > 10000 || rate < 100 || rate > 100000 {
		return errors.New("rolling: -n must be 1 to 100, -nodes 2 to 9, -shards -nodes to 10000, -rate 100 to 100000")
	}
	b, err := newBed(ctx, r)
	if err != nil {
		return err
	}
	defer b.close()
	set := shardSettings{Shards: shards, Each: max(1, 1024/shards), Hosts: nodes}
	// Three entries an ask, all on one node at the worst; the file is sparse.
	room := int(3*rate*(60+float64(rounds*nodes)*60)) + 100000
	c, err := newCluster(ctx, b, nodes+1, room, settings{TTL: 10 * time.Second, Shard: &set})
	if err != nil {
		return err
	}
	defer c.end()
	w := &rollover{shardView: newShardView(c, shards), rate: rate, client: clientShare, hosts: nodes, sent: map[uint32]uint64{}}
	if err := w.run(ctx, rounds); err != nil {
		return err
	}
	return w.judge(r, rounds)
}

// rollover is a run of rolling.
type rollover struct {
	*shardView
	rate       float64
	client     float64 // its share of the load
	hosts      int
	began, end time.Duration // of the load

	sent    map[uint32]uint64
	failed  int // asks that came back
	moves   []span
	leaving []time.Duration // from the order to leave until it had
	filling []time.Duration // from the new process's start until all is even
	weights []weight        // of the processes before they left, and of the last
	stuck   error
}

func (w *rollover) run(ctx context.Context, rounds int) error {
	hosts, err := w.begin(ctx)
	if err != nil {
		return err
	}
	if err := lab.Pause(ctx, 2*warmUp); err != nil {
		return err
	}
	for k := range rounds * w.hosts {
		err := w.restart(ctx, k%w.hosts, hosts)
		if errors.Is(err, errNever) {
			w.stuck = err
			break
		} else if err != nil {
			return err
		}
		if err := lab.Pause(ctx, warmUp); err != nil {
			return err
		}
	}
	return w.finish(ctx)
}

// begin has all nodes take part, and begins the load.
func (w *rollover) begin(ctx context.Context) (hosts []int, err error) {
	all := make([]int, len(w.cluster.nodes))
	for i := range all {
		all[i] = i
	}
	hosts = all[:w.hosts:w.hosts]
	if _, err := w.takePart(ctx, all...); err != nil {
		return nil, err
	}
	if _, err := w.settled(ctx, patience, 0, hosts...); err != nil {
		return nil, err
	}
	w.began = lab.Now()
	for _, i := range all {
		if err := w.load(i); err != nil {
			return nil, err
		}
	}
	return hosts, nil
}

// finish ends the load.
func (w *rollover) finish(ctx context.Context) error {
	w.end = lab.Now()
	for i := range w.cluster.nodes {
		if err := w.quiet(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (w *rollover) load(i int) error {
	rate := w.rate * w.client
	if i < w.hosts {
		rate = w.rate * (1 - w.client) / float64(w.hosts)
	}
	return w.nodes[i].tell(order{Do: doLoad, Rate: rate})
}

// quiet ends the load of a node and takes its figures.
func (w *rollover) quiet(ctx context.Context, i int) error {
	q, err := w.quietOf(ctx, i)
	if err != nil {
		return err
	}
	maps.Copy(w.sent, q.Sent)
	w.failed += q.Failed
	at := lab.Now()
	if err := w.nodes[i].tell(order{Do: doWeigh}); err != nil {
		return err
	}
	s, err := w.nodes[i].await(ctx, at, patience, hasWeight, func(r said) bool { return r.What == hasWeight })
	w.weights = append(w.weights, s.Weight)
	return err
}

// restart has a node leave, starts another process in its place, and waits until
// that has its part.
func (w *rollover) restart(ctx context.Context, i int, hosts []int) error {
	if err := w.quiet(ctx, i); err != nil {
		return err
	}
	at := lab.Now()
	left, err := w.leave(ctx, i)
	if err != nil {
		return err
	}
	w.died(i)
	again := lab.Now()
	if err := w.start(ctx, i); err != nil {
		return err
	}
	if _, err := w.takePart(ctx, i); err != nil {
		return err
	}
	if err := w.load(i); err != nil {
		return err
	}
	since, err := w.settled(ctx, patience, 0, hosts...)
	w.moves = append(w.moves, span{at, lab.Now()})
	if err != nil {
		return err
	}
	w.leaving, w.filling = append(w.leaving, left-at), append(w.filling, since-again)
	return nil
}

func (w *rollover) judge(r *report, rounds int) error {
	es, err := w.evidence()
	if err != nil {
		return err
	}
	r.printf("       %d nodes and one that asks only, %d shards, %d entities, %d restarts",
		w.hosts, len(w.homes), len(w.homes)*max(1, 1024/len(w.homes)), len(w.leaving))
	w.judgeMail(r, es, "restart", rounds*w.hosts-len(w.leaving))
	return nil
}

// judgeMail judges what became of the asks; missing moves, of a kind, did not come
// about.
func (w *rollover) judgeMail(r *report, es []seen, move string, missing int) {
	got := only(es, handled)
	a, d := judgeAsks(es, w.sent, w.moves), judgeDelivery(got, w.sent)
	took := (w.end - w.began).Seconds()
	var sum weight
	for _, x := range w.weights {
		sum.Dropped += x.Dropped
		sum.Undeliverable += x.Undeliverable
		sum.DeadLetters += x.DeadLetters
	}
	r.printf("       %.0f asks a second for %.1f s", float64(a.sent)/took, took)
	r.printf("       by the nodes' own counts: %d dropped, %d undeliverable, %d dead letters, %d back at their senders, %d moves without known order",
		sum.Dropped, sum.Undeliverable, sum.DeadLetters, w.failed, countOf(es, disordered, 0, w.end+answerWithin))
	if w.stuck != nil {
		r.printf("       %v", w.stuck)
	}
	r.atMost("share of the load that was not sent", 1-float64(a.sent)/(w.rate*took), 2*shortBound, "")
	r.atMost(move+"s that did not come about", float64(missing), 0, "")
	r.atMost(fmt.Sprintf("asks not answered within %v", answerWithin), float64(a.sent-a.answered), 0, "")
	r.delivered(d)
	r.atMost("passes that overlap another token's or host's", float64(overlaps(only(es, passed))), 0, "")
	r.atMost("messages handled that overlap another token's or host's", float64(overlaps(got)), 0, "")
	r.spread("an ask's answer, nothing moving", a.calm)
	r.spread("an ask's answer, in a "+move, a.moving)
	r.spread("a shard's silence at its move", shardGaps(es, w.moves))
	r.spread("from the order to leave to having left", w.leaving)
	r.spread("from a process's start to its part", w.filling)
}
