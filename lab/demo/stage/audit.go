//go:build linux

package stage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Audit follows a ledger in etcd: every write that etcd applied, in its order,
// whatever those who wrote have told of it.
type Audit[E any] struct {
	client *clientv3.Client
	prefix string

	mu      sync.Mutex
	applied []Placed[E]
	err     error // it ended early
}

// Placed is an entry and where in the ledger's order it stands.
type Placed[E any] struct {
	Revision int64
	Entry    E
}

// startAudit follows the ledger under prefix until ctx is done. It must be empty.
// entryOf reads what a key of it says.
func startAudit[E any](ctx context.Context, client *clientv3.Client, prefix string, entryOf func(*mvccpb.KeyValue) (E, error)) *Audit[E] {
	a := &Audit[E]{client: client, prefix: prefix}
	changes := client.Watch(clientv3.WithRequireLeader(ctx), prefix, clientv3.WithPrefix(), clientv3.WithRev(1))
	go func() {
		for c := range changes {
			a.take(c, entryOf)
		}
	}()
	return a
}

func (a *Audit[E]) take(c clientv3.WatchResponse, entryOf func(*mvccpb.KeyValue) (E, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := c.Err(); err != nil && a.err == nil {
		a.err = fmt.Errorf("following the ledger: %w", err)
	}
	for _, e := range c.Events {
		x, err := entryOf(e.Kv)
		if err != nil && a.err == nil {
			a.err = err
		}
		a.applied = append(a.applied, Placed[E]{e.Kv.ModRevision, x})
	}
}

// Last returns the last entry that fits; ok is false if there is none.
func (a *Audit[E]) Last(fits func(E) bool) (x E, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range slices.Backward(a.applied) {
		if fits(p.Entry) {
			return p.Entry, true
		}
	}
	return x, false
}

// Head returns the revision of the last write to the ledger.
func (a *Audit[E]) Head(ctx context.Context) (int64, error) {
	resp, err := a.client.Get(ctx, a.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend), clientv3.WithLimit(1))
	if err != nil || len(resp.Kvs) == 0 {
		return 0, err
	}
	return resp.Kvs[0].ModRevision, nil
}

// Reached reports whether everything up to the revision is known.
func (a *Audit[E]) Reached(revision int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.applied)
	return n > 0 && a.applied[n-1].Revision >= revision
}

// Writes returns what was applied.
func (a *Audit[E]) Writes() ([]Placed[E], error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.applied), a.err
}

// InOrder returns the entries as they came: what was not applied comes after what
// stood at the revision that refused it. of says what became of one, and when.
func InOrder[E any](all []Placed[E], of func(E) (Outcome, time.Duration)) (entries []E) {
	slices.SortStableFunc(all, func(x, y Placed[E]) int {
		xOutcome, xAt := of(x.Entry)
		yOutcome, yAt := of(y.Entry)
		return cmp.Or(cmp.Compare(x.Revision, y.Revision), cmp.Compare(xOutcome, yOutcome), cmp.Compare(xAt, yAt))
	})
	for _, x := range all {
		entries = append(entries, x.Entry)
	}
	return entries
}
