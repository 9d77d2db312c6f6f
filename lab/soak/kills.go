//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	mrand "math/rand/v2"
	"time"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// Of the asks that go on all the time, on every node.
const (
	askEvery  = 5 * time.Millisecond
	askWithin = 250 * time.Millisecond
)

// kills ends the process that hosts, again and again.
func kills(ctx context.Context, args []string, r *report) error {
	var n, nodes int
	var ttl time.Duration
	if err := flags("kills", args, func(f *flag.FlagSet) {
		f.IntVar(&n, "n", 20, "kills of the host")
		f.IntVar(&nodes, "nodes", 3, "processes")
		f.DurationVar(&ttl, "ttl", 2*time.Second, "TTL")
	}); err != nil {
		return err
	}
	if n < 1 || nodes < 2 || nodes > 100 || ttl < 2*time.Second {
		return errors.New("kills: -n must be at least 1, -nodes 2 to 100, -ttl at least 2s")
	}
	b, err := newBed(ctx, r)
	if err != nil {
		return err
	}
	defer b.close()
	// What one node may ask for one kill, if that is the one that stays without
	// answers, and two entries for each on whoever hosts; the file is sparse.
	asks := (7*ttl + 20*time.Second) / askEvery
	room := 10000 + 3*int(asks)*nodes*n
	c, err := newCluster(ctx, b, nodes, room, settings{TTL: ttl, Names: 1})
	if err != nil {
		return err
	}
	defer c.end()
	k := &killing{cluster: c, ttl: ttl}
	if err := k.begin(ctx); err != nil {
		return err
	}
	for len(k.worst) < n && len(k.stuck) == 0 {
		if err := k.kill(ctx); err != nil {
			return err
		}
	}
	return k.judge(r, n)
}

// killing is a run of kills.
type killing struct {
	*cluster
	ttl   time.Duration
	token uint64 // of the present host
	host  int

	worst   []time.Duration // from a kill until every surviving node had an answer
	first   []time.Duration // until one had
	healed  []time.Duration // until the new process had, too
	stuck   []error
	toHeirs int // changes to the process that replaced the host
}

// begin starts the singleton and the asks, and waits until all have answers.
func (k *killing) begin(ctx context.Context) error {
	began := lab.Now()
	if _, err := k.all(ctx, order{Do: doHost}, isHosting); err != nil {
		return err
	}
	if err := k.tell(order{Do: doAsk, Every: askEvery, Within: askWithin}); err != nil {
		return err
	}
	if _, err := k.each(ctx, began, hasAnswer); err != nil {
		return err
	}
	return k.find()
}

// find finds out which living node hosts under the newest token.
func (k *killing) find() error {
	k.token = 0
	for i, p := range k.nodes {
		p.find(0, func(r said) bool {
			if r.What == hosts && r.Token > k.token {
				k.token, k.host = r.Token, i
			}
			return false
		})
	}
	if k.token == 0 {
		return errors.New("no living node has ever hosted")
	}
	return nil
}

// kill ends the host's process anywhere between two renewals, starts another in
// its place, and waits until all nodes have answers again.
func (k *killing) kill(ctx context.Context) error {
	if err := lab.Pause(ctx, k.ttl/2+time.Duration(mrand.Int64N(int64(k.ttl/2)))); err != nil {
		return err
	}
	at, host, old := lab.Now(), k.host, k.token
	if err := k.nodes[host].kill(); err != nil {
		return err
	}
	if err := k.start(ctx, host); err != nil {
		return err
	}
	for _, o := range []order{{Do: doHost}, {Do: doAsk, Every: askEvery, Within: askWithin}} {
		if err := k.nodes[host].tell(o); err != nil {
			return err
		}
	}
	worst, first := time.Duration(0), time.Duration(0)
	for i, p := range k.nodes {
		took, err := k.again(ctx, p, at, old)
		switch {
		case errors.Is(err, errNever):
			k.stuck = append(k.stuck, fmt.Errorf("kill of token %d on node-%d: %w", old, host, err))
		case err != nil:
			return err
		}
		if i == host {
			k.healed = append(k.healed, took)
			continue
		}
		if worst = max(worst, took); first == 0 || took < first {
			first = took
		}
	}
	k.worst, k.first = append(k.worst, worst), append(k.first, first)
	if len(k.stuck) > 0 {
		return nil
	}
	if err := k.find(); err != nil {
		return err
	}
	k.toHeirs += count(k.host == host)
	return nil
}

// again waits until a node has an answer from a later host; if none comes, it
// took as long as was waited.
func (k *killing) again(ctx context.Context, p *process, at time.Duration, old uint64) (time.Duration, error) {
	r, err := p.await(ctx, at, 5*k.ttl+10*time.Second, "answer after the kill", func(r said) bool { return r.What == hasAnswer && r.Token > old })
	if err != nil {
		return lab.Now() - at, err
	}
	return r.At - at, nil
}

func (k *killing) judge(r *report, n int) error {
	es, err := k.evidence()
	if err != nil {
		return err
	}
	passes := only(es, passed)
	r.printf("       %d nodes, TTL %v, each asks every %v with %v for an answer; %d messages passed the gate; %d of %d changes to the new process",
		len(k.nodes), k.ttl, askEvery, askWithin, len(passes), k.toHeirs, n)
	for _, err := range k.stuck {
		r.printf("       %v", err)
	}
	r.spread("kill to a survivor's first answer", k.first)
	r.spread("kill to every survivor's first answer", k.worst)
	r.spread("kill to the new process's first answer", k.healed)
	r.atMost("kills that were not made", float64(n-len(k.worst)), 0, "")
	r.atMost("nodes that had no answer again", float64(len(k.stuck)), 0, "")
	r.within("longest from a kill to every survivor's first answer", lab.Percentile(k.worst, 100), k.ttl+time.Second)
	r.atMost("passes that overlap another token's or host's", float64(overlaps(passes)), 0, "")
	r.atMost("messages handled that overlap another token's or host's", float64(overlaps(only(es, handled))), 0, "")
	return nil
}
