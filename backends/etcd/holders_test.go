//go:build unix

package etcd_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

const (
	// ttl is of holders that lose what they hold, or may; of all others it is lasting.
	ttl = 6 * time.Second
	// trust is how long a holder believes after it sent its last renewal that
	// succeeded: the TTL less the default margin.
	trust = ttl - ttl/10
	// soon bounds, generously, how long things take on a machine that is busy. How
	// long they may take is asserted on fake time, and measured by lab/leases.
	soon = 30 * time.Second
)

// now is the clock that every Keeper of this process goes by.
func now() time.Duration { return store.SystemClock().Now().Mono }

// node is a Keeper over a store of its own.
type node struct {
	id     string
	store  *etcd.Store
	keeper *lease.Keeper
}

func newNode(t *testing.T, client *clientv3.Client, prefix, id string, ttl time.Duration) *node {
	t.Helper()
	n := &node{id: id, store: newStore(t, client, prefix)}
	k := must(lease.NewKeeper(n.store, lease.Config{ID: id, TTL: ttl}))(t)
	n.keeper = k
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := k.Close(ctx); err != nil {
			t.Logf("closing %s: %v", id, err)
		}
	})
	return n
}

func (n *node) lease(t *testing.T, name string, opts ...lease.Option) *lease.Handle {
	t.Helper()
	h := must(n.keeper.Lease(name, opts...))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Logf("closing: %v", err)
		}
	})
	return h
}

// tenure is one term as its holder saw it: alive at first, at last, and whenever
// it looked between. The times are those that the checks went by.
type tenure struct {
	name, node  string
	token       store.Token
	first, last time.Duration
	lost        bool // it ended against its holder's will
	robbed      bool // the store took its record away
}

// journal collects tenures of all nodes of one test.
type journal struct {
	mu   sync.Mutex
	list []*tenure
	// resumed is when a stopped leader of etcd was continued. Such a one may revoke
	// leases that its successor has renewed since (docs/etcd.md): the store's doing,
	// against which a holder can only be told.
	resumed []time.Duration
}

// mayRob excuses what etcd takes away soon after now.
func (j *journal) mayRob() { j.resumed = append(j.resumed, now()) }

// robbedBy reports whether e lost its record to a leader that was continued.
func (j *journal) robbedBy(e tenure) bool {
	return e.robbed && slices.ContainsFunc(j.resumed, func(at time.Duration) bool { return e.last > at && e.last < at+ttl })
}

// contend wants name, on n, until ctx ends: it holds it for a while (0: as long as
// it can), journals, gives it back, and wants it again.
func (j *journal) contend(ctx context.Context, n *node, h *lease.Handle, hold time.Duration) {
	for ctx.Err() == nil {
		err := lease.Run(ctx, h, func(ctx context.Context, t lease.Term) error {
			j.follow(ctx, n.id, t, hold)
			return nil
		})
		if errors.Is(err, lease.ErrClosed) {
			return
		}
	}
}

func (j *journal) follow(ctx context.Context, node string, t lease.Term, hold time.Duration) {
	at, alive := t.Check()
	if !alive {
		return
	}
	e := &tenure{name: t.Name(), node: node, token: t.Token(), first: at, last: at}
	j.mu.Lock()
	j.list = append(j.list, e)
	j.mu.Unlock()
	for alive && ctx.Err() == nil && (hold == 0 || at < e.first+hold) {
		time.Sleep(2 * time.Millisecond)
		if at, alive = t.Check(); alive {
			j.mu.Lock()
			e.last = at
			j.mu.Unlock()
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	e.lost = !alive
	e.robbed = !alive && errors.Is(context.Cause(t.Context()), lease.ErrRecordGone)
}

// group starts contenders for every name on every node and returns how to end
// them all, which also ends with the test.
func (j *journal) group(t *testing.T, nodes []*node, names map[string]time.Duration) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for name, hold := range names {
		for _, n := range nodes {
			h := n.lease(t, name)
			wg.Go(func() { j.contend(ctx, n, h, hold) })
		}
	}
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return stop
}

func (j *journal) all() []tenure {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := make([]tenure, len(j.list))
	for i, e := range j.list {
		list[i] = *e
	}
	return list
}

// check fails the test unless, for every name, each tenure was over before one
// with a higher token began.
func (j *journal) check(t *testing.T) {
	t.Helper()
	list := j.all()
	require.NotEmpty(t, list)
	slices.SortFunc(list, func(a, b tenure) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.token, b.token))
	})
	for i, b := range list[1:] {
		if a := list[i]; a.name == b.name {
			if a.token == b.token {
				tier.Unsafe(t, "one token was issued twice: %+v, %+v", a, b)
			}
			if a.last >= b.first && j.robbedBy(a) {
				t.Logf("etcd gave a renewed lease away: %+v, %+v", a, b)
				require.Less(t, a.last-b.first, time.Second, "and its holder was not told: %+v, %+v", a, b)
				continue
			}
			if a.last >= b.first {
				tier.Unsafe(t, "two believed at once: %+v, %+v", a, b)
			}
		}
	}
}

// silent fails the test if anybody believed between from and to.
func (j *journal) silent(t *testing.T, from, to time.Duration) {
	t.Helper()
	for _, e := range j.all() {
		if e.last > from && e.first < to {
			tier.Unsafe(t, "believed though it could not know, from %v to %v: %+v", from, to, e)
		}
	}
}

// held waits until every name was believed to be held after since, and returns
// how long after since that was.
func (j *journal) held(t *testing.T, since time.Duration, names map[string]time.Duration) time.Duration {
	t.Helper()
	seen := map[string]time.Duration{}
	eventually(t, soon, "all names held", func() bool {
		clear(seen)
		for _, e := range j.all() {
			if at := max(e.first, since+1); e.last > since && (seen[e.name] == 0 || at < seen[e.name]) {
				seen[e.name] = at
			}
		}
		return len(seen) == len(names)
	})
	var took time.Duration
	for _, at := range seen {
		took = max(took, at-since)
	}
	return took
}

// by waits for a tenure of node that began after since.
func (j *journal) by(t *testing.T, node string, since time.Duration) tenure {
	t.Helper()
	var found tenure
	eventually(t, soon, node+" holds it", func() bool {
		for _, e := range j.all() {
			if e.node == node && e.first > since {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// lost counts tenures that ended against their holder's will since then.
func (j *journal) lost(since time.Duration) int {
	n := 0
	for _, e := range j.all() {
		if e.last > since && e.lost {
			n++
		}
	}
	return n
}
