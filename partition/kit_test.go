package partition

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/store/faultclock"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 10 * time.Second

// world is some nodes on one store, on fake time, and the judge of what they own.
type world struct {
	t     *testing.T
	store *memory.Store
	nodes []*node
	slow  time.Duration // what each call of the store takes

	daemons bool // so are partitions that have no keys

	mu    sync.Mutex
	runs  []*run
	live  []*run // that go on
	trace []string
}

// run is one call of Own.
type run struct {
	n     *node
	key   string
	began time.Time
	ended time.Time // zero: it goes on
	owned Owned
	ctx   context.Context
}

func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, store: memory.New()}
		defer func() {
			for _, n := range slices.Backward(w.nodes) {
				n.close()
			}
		}()
		f(t, w)
	})
}

// node is one node's Keeper, group and partitions.
type node struct {
	*Partitions
	w      *world
	id     string
	clock  *faultclock.Clock
	store  *faultstore.Store
	reader metric.Reader
	keeper *lease.Keeper
	group  *membership.Group
	gone   bool // crashed, or stopped
	frozen bool
	others bool // its partitions are not those of the history
}

func (w *world) node(id string, opts ...membership.Option) *node {
	w.t.Helper()
	n := w.make(id)
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	var err error
	n.group, err = membership.Join(ctx, n.keeper, "g", opts...)
	require.NoError(w.t, err)
	return n
}

// make makes a node that is not in the group.
func (w *world) make(id string) *node {
	w.t.Helper()
	n := &node{w: w, id: id, clock: faultclock.New(), store: faultstore.Wrap(w.store), reader: metric.NewManualReader()}
	k, err := lease.NewKeeper(n.store, lease.Config{ID: id, Address: id + ":1", TTL: ttl, Clock: n.clock,
		MeterProvider: metric.NewMeterProvider(metric.WithReader(n.reader))})
	require.NoError(w.t, err)
	if n.keeper = k; w.slow > 0 {
		n.store.SetRule(faultstore.On(faultstore.Fault{Kind: faultstore.Delay, Delay: w.slow}, faultstore.Acquire, faultstore.Release, faultstore.Transfer))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes = append(w.nodes, n)
	return n
}

// take starts partitions of "p" on a node that is new.
func (w *world) take(id string, cfg Config, opts ...membership.Option) *node {
	w.t.Helper()
	n := w.node(id, opts...)
	n.start(cfg)
	return n
}

// start has Own noted by the judge.
func (n *node) start(cfg Config) {
	n.w.t.Helper()
	own := cfg.Own
	if cfg.Name == "" {
		cfg.Name = "p"
	}
	cfg.Own = func(ctx context.Context, o Owned) error {
		defer n.w.begins(n, ctx, o)()
		if own != nil {
			return own(ctx, o)
		}
		<-ctx.Done()
		return nil
	}
	p, err := start(n.w.t.Context(), n.group, cfg, n.w.daemons && cfg.Keys == nil)
	require.NoError(n.w.t, err)
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.Partitions = p
}

// begins notes a run.
func (w *world) begins(n *node, ctx context.Context, o Owned) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &run{n: n, key: o.Key, began: time.Now(), owned: o, ctx: ctx}
	w.runs, w.live = append(w.runs, r), append(w.live, r)
	w.judgeLocked()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		r.ended = time.Now()
		w.live = slices.DeleteFunc(w.live, func(x *run) bool { return x == r })
	}
}

// judgeLocked fails if two nodes that run believe that they own the same: of 4 partitions the second has
// what the second and the sixth of 8 have.
func (w *world) judgeLocked() {
	for i, a := range w.live {
		for _, b := range w.live[:i] {
			same := a.key == b.key
			if n := min(a.n.cfg.Count, b.n.cfg.Count); n > 0 && a.n.strict {
				same = a.owned.Number%n == b.owned.Number%n
			}
			// In this order: the earlier one may just have ended.
			if same && !a.n.frozen && !b.n.frozen && a.owned.CheckAlive() && b.owned.CheckAlive() {
				w.t.Errorf("%s of %s under %d and %s of %s under %d\n%s", a.key, a.n.id, a.owned.Token(), b.key, b.n.id, b.owned.Token(), strings.Join(w.trace, "\n"))
			}
		}
	}
}

// freeze pauses a node as SIGSTOP does; its code goes on, but says nothing to the store.
func (n *node) freeze() {
	n.w.mu.Lock()
	n.frozen = true
	n.w.mu.Unlock()
	n.store.Partition()
	n.clock.Freeze()
}

func (n *node) thaw() {
	n.store.Heal()
	n.clock.Thaw()
	n.w.mu.Lock()
	n.frozen = false
	n.w.mu.Unlock()
}

// crash ends a node as kill -9 does.
func (n *node) crash() {
	n.freeze()
	n.gone = true
}

// stop ends a node in order.
func (n *node) stop() error {
	n.gone = true
	ctx, cancel := context.WithTimeout(n.w.t.Context(), time.Minute)
	defer cancel()
	err := n.Stop(ctx)
	_ = n.group.Leave(ctx)
	_ = n.keeper.Close(ctx)
	return err
}

func (n *node) close() {
	n.thaw()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if n.Partitions != nil {
		_ = n.Stop(ctx)
		<-n.closed
	}
	if n.group != nil {
		_ = n.group.Leave(ctx)
	}
	_ = n.keeper.Close(ctx)
	n.store.Wait()
}

// settled waits until the partitions of a node are where they should be.
func (n *node) settled() {
	n.w.t.Helper()
	ctx, cancel := context.WithTimeout(n.w.t.Context(), 5*time.Minute)
	defer cancel()
	require.NoError(n.w.t, n.Wait(ctx))
	synctest.Wait()
}

// owned counts the partitions of nodes.
func owned(nodes ...*node) (counts []int) {
	for _, n := range nodes {
		counts = append(counts, len(n.Owned()))
	}
	return counts
}

// so is how many runs there were, for since.
func (w *world) so() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.runs)
}

// since is how many runs began after the first so, and the longest time that a partition of these
// had no owner before.
func (w *world) since(so int) (began int, longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := map[string]time.Time{}
	for i, r := range w.runs {
		if end, ok := last[r.key]; ok && i >= so {
			longest = max(longest, r.began.Sub(end))
		}
		last[r.key] = r.ended
	}
	return len(w.runs) - so, longest
}

func names(count int) (ids []string) {
	for i := range count {
		ids = append(ids, fmt.Sprint("n", i))
	}
	return ids
}
