//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// Bounds of shards, for 10 000 of them on four nodes, on two processors.
const (
	assignBound = 5 * time.Second // from the last node's start
	adoptBound  = 3 * time.Second // beside the TTL
	bossBound   = 2 * time.Second
	// What a node may need for what it knows and hosts: so much for itself, and for
	// each shard of the type.
	shardHeapOfNode, shardHeapOfEach = 8 << 20, 4 << 10 // bytes
)

// stillFor is how long nothing must have moved before the next thing is done.
const stillFor = 2 * time.Second

// shardsCheck runs very many shards, without load.
func shardsCheck(ctx context.Context, args []string, r *report) error {
	var n, nodes int
	var ttl time.Duration
	if err := flags("shards", args, func(f *flag.FlagSet) {
		f.IntVar(&n, "n", 10000, "shards")
		f.IntVar(&nodes, "nodes", 4, "processes; one more joins in the end")
		f.DurationVar(&ttl, "ttl", 5*time.Second, "TTL")
	}); err != nil {
		return err
	}
	if nodes < 2 || nodes >= nodesPerLife || n < nodes || n > 50000 || ttl < 2*time.Second {
		return errors.New("shards: -n must be -nodes to 50000, -nodes 2 to 9, -ttl at least 2s")
	}
	b, err := newBed(ctx, r)
	if err != nil {
		return err
	}
	defer b.close()
	c, err := newCluster(ctx, b, nodes+1, 200*n+100000, settings{TTL: ttl, Shard: &shardSettings{Shards: n, Each: 1, Hosts: nodes + 1}})
	if err != nil {
		return err
	}
	defer c.end()
	m := &shardMany{shardView: newShardView(c, n), n: n, hosts: nodes, ttl: ttl, r: r}
	if err := m.run(ctx); err != nil && !errors.Is(err, errNever) {
		return err
	} else if err != nil {
		r.printf("       %v", err)
		m.stuck = 1
	}
	return m.judge()
}

// shardMany is a run of shards.
type shardMany struct {
	*shardView
	n, hosts int
	ttl      time.Duration
	r        *report

	needs multitude // what nodes need, and what they ask etcd for
	stuck int
}

func (m *shardMany) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{m.assign, m.idle, m.lose, m.succeed, m.grow, m.answers} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// among are the nodes that host, without some.
func (m *shardMany) among(but ...int) (all []int) {
	for i := range m.hosts {
		if !slices.Contains(but, i) {
			all = append(all, i)
		}
	}
	return all
}

// assign has all nodes start at once.
func (m *shardMany) assign(ctx context.Context) (err error) {
	m.needs = multitude{cluster: m.cluster, n: m.n, ttl: m.ttl}
	if m.needs.empty, err = m.all(ctx, order{Do: doWeigh}, hasWeight); err != nil {
		return err
	}
	began := lab.Now()
	last, err := m.takePart(ctx, m.among()...)
	if err != nil {
		return err
	}
	since, err := m.hosted(ctx, 10*assignBound)
	if err != nil {
		return err
	}
	has, _ := m.counts()
	m.r.printf("       %d shards, TTL %v, %d nodes that started within %v; they host %v", m.n, m.ttl, m.hosts, short(last-began), has)
	m.r.within("last node's start until all shards are hosted", max(0, since-last), assignBound)
	settled, err := m.settled(ctx, patience, stillFor, m.among()...)
	if err == nil {
		m.r.printf("       hosted %v, even %v after the order to start", short(since-began), short(settled-began))
	}
	return err
}

// idle takes what nodes need.
func (m *shardMany) idle(ctx context.Context) error {
	if err := m.answers(ctx); err != nil {
		return err
	}
	if err := lab.Pause(ctx, m.ttl); err != nil { // what the start left behind goes
		return err
	}
	if err := m.needs.requests(ctx, m.r); err != nil {
		return err
	}
	m.r.atMost("requests to etcd a second while all is idle", m.needs.requested, idleBound, "")
	for _, i := range m.among() {
		was, is := m.needs.empty[i].Weight, m.needs.idle[i].Weight
		m.r.printf("       node-%d hosts %d, an entity in each: heap %.1f MiB, RSS %.1f MiB, %d goroutines, %.2f %% of a processor", i, is.Hosted,
			mib(is.Heap), mib(is.RSS), is.Goroutines, 100*m.needs.cpu[i])
		m.r.atMost(fmt.Sprintf("node-%d, heap of all shards", i), mib(is.Heap)-mib(was.Heap), float64(shardHeapOfNode+m.n*shardHeapOfEach)/(1<<20), " MiB")
	}
	return nil
}

// answers has every node ask an entity of every shard.
func (m *shardMany) answers(ctx context.Context) error {
	began := lab.Now()
	all := m.among()
	if m.nodes[m.hosts].hasSaid(isHosting) {
		all = append(all, m.hosts)
	}
	at, err := m.sweepOf(ctx, 2*patience, all...)
	if err == nil {
		m.r.printf("       all shards answer all %d nodes within %v", len(all), short(slices.Max(at)-began))
	}
	return err
}

func (p *process) hasSaid(what string) bool {
	_, ok := p.find(0, func(r said) bool { return r.What == what })
	return ok
}

// lose kills the node that coordinates.
func (m *shardMany) lose(ctx context.Context) error {
	m.refresh()
	dies, old := m.boss.node, m.boss.token
	has, _ := m.counts()
	at := lab.Now()
	if err := m.nodes[dies].kill(); err != nil {
		return err
	}
	m.died(dies)
	since, err := m.hosted(ctx, 5*m.ttl+10*adoptBound)
	if err != nil {
		return err
	}
	m.r.printf("       node-%d, which coordinated and hosted %d, was killed; node-%d coordinates after %v", dies, has[dies], m.boss.node, short(m.boss.at-at))
	m.r.atMost("kills after which nobody else coordinated", float64(count(m.boss.token <= old)), 0, "")
	m.r.within("kill until all its shards are hosted again", since-at, m.ttl+adoptBound)
	return m.replace(ctx, dies)
}

// replace starts another process in place of one, and waits until it has its part.
func (m *shardMany) replace(ctx context.Context, i int) error {
	began := lab.Now()
	if err := m.start(ctx, i); err != nil {
		return err
	}
	if _, err := m.takePart(ctx, i); err != nil {
		return err
	}
	settled, err := m.settled(ctx, 2*patience, stillFor, m.among()...)
	if err == nil {
		m.r.printf("       another process in its place has its part after %v", short(settled-began))
	}
	return err
}

// succeed has the node that coordinates leave.
func (m *shardMany) succeed(ctx context.Context) error {
	m.refresh()
	leaves, old, began := m.boss.node, m.boss.token, lab.Now()
	left, err := m.leave(ctx, leaves)
	if err != nil {
		return err
	}
	m.died(leaves)
	if err := m.until(ctx, patience, "another node coordinates", func() bool { return m.boss.token > old && m.boss.node != leaves }); err != nil {
		return err
	}
	es, err := m.evidence()
	if err != nil {
		return err
	}
	last := began
	for _, e := range es {
		if e.kind == unhosted && e.node == leaves && e.at < left {
			last = max(last, e.at)
		}
	}
	m.r.printf("       node-%d, which coordinated, was told to leave: all its shards are handed over after %v, node-%d coordinates after %v, it has left after %v",
		leaves, short(last-began), m.boss.node, short(m.boss.at-began), short(left-began))
	m.r.within("last hand-over of the leaving coordinator's node until another coordinates", max(0, m.boss.at-last), bossBound)
	if _, err := m.settled(ctx, patience, stillFor, m.among(leaves)...); err != nil {
		return err
	}
	return m.replace(ctx, leaves)
}

// grow has one more node join.
func (m *shardMany) grow(ctx context.Context) error {
	m.refresh()
	began, before := lab.Now(), m.began
	if _, err := m.takePart(ctx, m.hosts); err != nil {
		return err
	}
	settled, err := m.settled(ctx, 2*patience, 2*stillFor, append(m.among(), m.hosts)...)
	if err != nil {
		return err
	}
	m.r.printf("       node-%d joined, and has its part after %v", m.hosts, short(settled-began))
	m.r.atMost("shards that moved when a node joined", float64(m.began-before), float64((m.n+m.hosts)/(m.hosts+1)+1), "")
	return nil
}

func (m *shardMany) judge() error {
	es, err := m.evidence()
	if err != nil {
		return err
	}
	m.r.atMost("steps that did not come to an end", float64(m.stuck), 0, "")
	passes := only(es, passed)
	m.r.atMost("passes that overlap another token's or host's", float64(overlaps(passes)), 0, "")
	m.r.atMost("messages handled that overlap another token's or host's", float64(overlaps(only(es, handled))), 0, "")
	m.r.printf("       %d messages passed the gates", len(passes))
	return nil
}
