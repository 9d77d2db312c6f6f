//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// Bounds of many; those of time and of requests are for 5000 singletons on three
// nodes, on two processors.
const (
	startBound    = 15 * time.Second
	takeOverBound = 5 * time.Second // beside the TTL
	idleBound     = 50              // requests a second to etcd, of all nodes
)

// What a node's managers, and the children of those that host, may need: so much
// for the node, and for each.
const (
	heapOfNode, heapOfEach             = 4 << 20, 16 << 10 // bytes
	goroutinesOfNode, goroutinesOfEach = 60, 0.005
)

// sweepWithin is an ask's deadline: what was sent to a node that died is not
// answered, and asked again.
const sweepWithin = 500 * time.Millisecond

// etcdMethods are what a node may ask etcd for.
var etcdMethods = []string{"Range", "Put", "DeleteRange", "Txn", "Watch", "LeaseGrant", "LeaseRevoke", "LeaseKeepAlive", "LeaseTimeToLive"}

// many runs very many singletons, and ends one of the processes.
func many(ctx context.Context, args []string, r *report) error {
	var n, nodes int
	var ttl time.Duration
	if err := flags("many", args, func(f *flag.FlagSet) {
		f.IntVar(&n, "n", 5000, "singletons")
		f.IntVar(&nodes, "nodes", 3, "processes")
		f.DurationVar(&ttl, "ttl", 10*time.Second, "TTL")
	}); err != nil {
		return err
	}
	if n < 1 || n > 50000 || nodes < 2 || nodes > 100 || ttl < 2*time.Second {
		return errors.New("many: -n must be 1 to 50000, -nodes 2 to 100, -ttl at least 2s")
	}
	b, err := newBed(ctx, r)
	if err != nil {
		return err
	}
	defer b.close()
	c, err := newCluster(ctx, b, nodes, 200*n+10000, settings{TTL: ttl, Names: n})
	if err != nil {
		return err
	}
	defer c.end()
	m := &multitude{cluster: c, n: n, ttl: ttl}
	if err := m.run(ctx, r); err != nil {
		return err
	}
	return m.judge(r)
}

// multitude is a run of many.
type multitude struct {
	*cluster
	n             int
	ttl           time.Duration
	started, back time.Duration // until all answered each node
	empty, idle   []said        // what each node needs
	cpu           []float64     // share of one processor, of each node while idle
	requested     float64       // of etcd, a second, while idle
	stuck         error         // a sweep that did not end
}

func (m *multitude) run(ctx context.Context, r *report) (err error) {
	if m.empty, err = m.all(ctx, order{Do: doWeigh}, hasWeight); err != nil {
		return err
	}
	began := lab.Now()
	if err := m.tell(order{Do: doHost}); err != nil {
		return err
	}
	if m.started, err = m.sweep(ctx, began, 10*startBound); err != nil || m.stuck != nil {
		return err
	}
	if err := lab.Pause(ctx, m.ttl); err != nil { // what the start left behind goes
		return err
	}
	if err := m.requests(ctx, r); err != nil {
		return err
	}
	dies := 0
	for i, s := range m.idle {
		if s.Weight.Hosted > m.idle[dies].Weight.Hosted {
			dies = i
		}
	}
	r.printf("       node-%d is killed", dies)
	killed := lab.Now()
	if err := m.nodes[dies].kill(); err != nil {
		return err
	}
	m.nodes = append(m.nodes[:dies:dies], m.nodes[dies+1:]...)
	m.back, err = m.sweep(ctx, killed, 10*(m.ttl+takeOverBound))
	return err
}

// sweep has every node ask every singleton until it answered, and returns how
// long that took since then. It notes if it was too long to wait for.
func (m *multitude) sweep(ctx context.Context, since, within time.Duration) (took time.Duration, err error) {
	began := lab.Now()
	if err := m.tell(order{Do: doSweep, Within: sweepWithin}); err != nil {
		return 0, err
	}
	for _, p := range m.nodes {
		s, err := p.await(ctx, began, within, hasSwept, func(s said) bool { return s.What == hasSwept })
		if errors.Is(err, errNever) {
			m.stuck = err
			return lab.Now() - since, nil
		} else if err != nil {
			return 0, err
		}
		took = max(took, s.At-since)
	}
	return took, nil
}

// requests counts, at the server, what idle singletons cost, and on the nodes.
func (m *multitude) requests(ctx context.Context, r *report) error {
	before, err := m.received(ctx)
	if err != nil {
		return err
	}
	cpu0, err := m.all(ctx, order{Do: doWeigh}, hasWeight)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := lab.Pause(ctx, 2*m.ttl); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := m.received(ctx)
	if err != nil {
		return err
	}
	if m.idle, err = m.all(ctx, order{Do: doWeigh}, hasWeight); err != nil {
		return err
	}
	for i := range m.idle {
		m.cpu = append(m.cpu, (m.idle[i].Weight.CPU-cpu0[i].Weight.CPU).Seconds()/took.Seconds())
	}
	text := ""
	for i, method := range etcdMethods {
		rate := (after[i] - before[i]) / took.Seconds()
		m.requested += rate
		text += fmt.Sprintf(" %s %.2f", method, rate)
	}
	r.printf("       idle, requests to etcd a second:%s", text)
	return nil
}

// received is how many messages of each kind the server has had.
func (m *multitude) received(ctx context.Context) ([]float64, error) {
	got, err := m.member().Metrics(ctx)
	if err != nil {
		return nil, err
	}
	if got.Sum("grpc_server_msg_received_total") == 0 {
		return nil, errors.New("the server counts no requests: another name for the metric?")
	}
	out := make([]float64, len(etcdMethods))
	for i, method := range etcdMethods {
		out[i] = got.Sum("grpc_server_msg_received_total", fmt.Sprintf("grpc_method=%q", method))
	}
	return out, nil
}

func (m *multitude) judge(r *report) error {
	es, err := m.evidence()
	if err != nil {
		return err
	}
	if m.stuck != nil {
		r.printf("       %v", m.stuck)
	}
	r.atMost("sweeps that did not end", float64(count(m.stuck != nil)), 0, "")
	passes := only(es, passed)
	r.printf("       %d singletons, TTL %v; %d messages passed their gates", m.n, m.ttl, len(passes))
	for i, s := range m.idle {
		was, is, n := m.empty[i].Weight, s.Weight, float64(m.n)
		r.printf("       %s", m.needs(i))
		r.atMost(fmt.Sprintf("node-%d, heap of all managers", i), mib(is.Heap)-mib(was.Heap), (heapOfNode+n*heapOfEach)/(1<<20), " MiB")
		r.atMost(fmt.Sprintf("node-%d, goroutines of all managers", i), float64(is.Goroutines-was.Goroutines), goroutinesOfNode+n*goroutinesOfEach, "")
	}
	r.atMost("requests to etcd a second while all is idle", m.requested, idleBound, "")
	r.within("start until all answered every node", m.started, startBound)
	r.within("kill until all answered every other node", m.back, m.ttl+takeOverBound)
	r.atMost("passes that overlap another token's or host's", float64(overlaps(passes)), 0, "")
	return nil
}

// needs says what a node needs when all is idle.
func (m *multitude) needs(i int) string {
	was, is := m.empty[i].Weight, m.idle[i].Weight
	each := func(x uint64, y uint64) float64 { return (float64(y) - float64(x)) / 1024 / float64(m.n) }
	return fmt.Sprintf("node-%d, %d host: heap %.1f MiB, RSS %.1f MiB, %d goroutines, %.2f %% of a processor; for each manager %.1f KiB, %.1f KiB, %.4f",
		i, is.Hosted, mib(is.Heap), mib(is.RSS), is.Goroutines, 100*m.cpu[i],
		each(was.Heap, is.Heap), each(was.RSS, is.RSS), float64(is.Goroutines-was.Goroutines)/float64(m.n))
}

func mib(bytes uint64) float64 { return float64(bytes) / (1 << 20) }
