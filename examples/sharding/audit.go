//go:build linux || darwin || freebsd

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// audit follows the ledger in etcd: every write that etcd applied, in its order,
// whatever those who wrote have told of it.
type audit struct {
	client *clientv3.Client

	mu      sync.Mutex
	applied []placed
	err     error // it ended early
}

// placed is an entry and where in the ledger's order it stands.
type placed struct {
	revision int64
	entry
}

// startAudit follows the ledger until ctx is done. It must be empty.
func startAudit(ctx context.Context, client *clientv3.Client) *audit {
	a := &audit{client: client}
	changes := client.Watch(clientv3.WithRequireLeader(ctx), entryPrefix, clientv3.WithPrefix(), clientv3.WithRev(1))
	go func() {
		for c := range changes {
			a.take(c)
		}
	}()
	return a
}

func (a *audit) take(c clientv3.WatchResponse) {
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
		a.applied = append(a.applied, placed{e.Kv.ModRevision, x})
	}
}

// head returns the revision of the last write to the ledger.
func (a *audit) head(ctx context.Context) (int64, error) {
	resp, err := a.client.Get(ctx, entryPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend), clientv3.WithLimit(1))
	if err != nil || len(resp.Kvs) == 0 {
		return 0, err
	}
	return resp.Kvs[0].ModRevision, nil
}

// reached reports whether everything up to the revision is known.
func (a *audit) reached(revision int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.applied)
	return n > 0 && a.applied[n-1].revision >= revision
}

// writes returns what was applied.
func (a *audit) writes() ([]placed, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.applied), a.err
}

// merge makes one journal and one list of passes of what etcd applied and what
// each node has told. What was applied is taken from etcd alone, for a node may
// be killed before it tells; what was not applied left no trace there, and comes
// after what stood at the revision that refused it.
func merge(applied []placed, told map[string][]report) (entries []entry, passes []pass) {
	all := slices.Clone(applied)
	for node, reports := range told {
		for _, r := range reports {
			switch {
			case r.What == didPass:
				passes = append(passes, pass{node, r.Shard, r.Token, r.At})
			case r.What == didWrite && r.Entry.Outcome != written:
				all = append(all, placed{r.Revision, *r.Entry})
			}
		}
	}
	slices.SortStableFunc(all, func(x, y placed) int {
		return cmp.Or(cmp.Compare(x.revision, y.revision), cmp.Compare(rank[x.Outcome], rank[y.Outcome]), cmp.Compare(x.At, y.At))
	})
	for _, x := range all {
		entries = append(entries, x.entry)
	}
	return entries, passes
}

// rank orders what became of writes at one revision.
var rank = map[outcome]int{written: 0, repeated: 1, refused: 2}
