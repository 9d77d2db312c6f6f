package etcdstore

import (
	"context"
	"fmt"
	"net/url"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

// Update implements sharding.EntityStore. It is applied as a whole if at most 99
// ids change, else in batches of as many, each as a whole: first what is added,
// then what is removed. The first that fails is the last that is sent.
func (s *Store) Update(ctx context.Context, o lease.Ownership, add, remove []string) error {
	for _, id := range slices.Concat(add, remove) {
		if err := sharding.ValidateEntityID(id); err != nil {
			return explain(ctx, "update", o, err)
		}
	}
	sh, leave, err := s.enter(ctx, o)
	if err != nil {
		return explain(ctx, "update", o, err)
	}
	defer leave()
	ctx = clientv3.WithRequireLeader(ctx)
	ops := s.ops(o.Name(), add, remove)
	for done := 0; ; {
		part := ops[done:min(done+maxOps-1, len(ops))]
		if err := s.write(ctx, sh, o, part); err != nil {
			return explain(ctx, "update", o, fmt.Errorf("after %d of %d changes: %w", done, len(ops), err))
		}
		if done += len(part); done == len(ops) {
			return nil
		}
	}
}

// ops are the changes that come to the same as add and then remove: one Txn takes
// no key twice.
func (s *Store) ops(name string, add, remove []string) []clientv3.Op {
	base := s.markKey(name)
	seen := make(map[string]bool, len(add)+len(remove))
	for _, id := range remove {
		seen[id] = true
	}
	var ops []clientv3.Op
	for _, id := range add {
		if !seen[id] {
			seen[id] = true
			ops = append(ops, clientv3.OpPut(base+url.PathEscape(id), ""))
		}
	}
	for _, id := range remove {
		if seen[id] {
			seen[id] = false
			ops = append(ops, clientv3.OpDelete(base+url.PathEscape(id)))
		}
	}
	return ops
}

// write applies ops in one Txn. It is refused if o is stale or the mark has
// changed; the latter was by a write of ours whose answer did not come, or by
// another Store, and it is tried again from there.
func (s *Store) write(ctx context.Context, sh *shard, o lease.Ownership, ops []clientv3.Op) error {
	mark := s.markKey(o.Name())
	ops = append(slices.Clip(ops), clientv3.OpPut(mark, ""))
	for {
		guard := s.leases.Guard(o)
		resp, err := s.client.Txn(ctx).
			If(guard, clientv3.Compare(clientv3.ModRevision(mark), "=", sh.mark)).
			Then(ops...).
			Else(clientv3.OpTxn([]clientv3.Cmp{guard}, []clientv3.Op{clientv3.OpGet(mark)}, nil)).
			Commit()
		if err != nil {
			return err
		}
		if resp.Succeeded {
			sh.mark = resp.Header.Revision
			return nil
		}
		found := resp.Responses[0].GetResponseTxn()
		if !found.Succeeded {
			return stale(o)
		}
		sh.mark = 0
		for _, kv := range found.Responses[0].GetResponseRange().Kvs {
			sh.mark = kv.ModRevision
		}
	}
}
