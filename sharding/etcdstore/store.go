package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

const (
	// maxOps is the number of operations in a Txn, the mark's included.
	maxOps = 100
	// pageSize is the number of keys that are read at once.
	pageSize = 1000
)

// Store remembers entities in etcd. It is safe for concurrent use.
type Store struct {
	client *clientv3.Client
	leases *etcd.Store
	prefix string
	marks  sync.Map // by lease name: the mark's mod revision, as last seen; kept for good
}

var _ sharding.EntityStore = (*Store)(nil)

// New returns a store over client, which it neither changes nor closes, fenced by
// the leases of store. Both must see the same keys: the same etcd, and the same
// namespace if there is one. It sends nothing. An error is lease.ErrInvalid.
func New(client *clientv3.Client, store *etcd.Store) (*Store, error) {
	switch {
	case client == nil || client.Ctx() == nil:
		return nil, fmt.Errorf("etcdstore.New: client: %w: nil or the zero value, must come from clientv3.New", lease.ErrInvalid)
	case store == nil || store.Prefix() == "":
		return nil, fmt.Errorf("etcdstore.New: store: %w: nil or the zero value, must come from etcd.New", lease.ErrInvalid)
	case !strings.HasSuffix(store.Prefix(), "/"):
		return nil, fmt.Errorf("etcdstore.New: store: %w: etcd.WithPrefix: %q, must end with a slash", lease.ErrInvalid, store.Prefix())
	}
	return &Store{client: client, leases: store, prefix: strings.TrimSuffix(store.Prefix(), "/") + "-entities/"}, nil
}

// markKey is the key of a shard's mark, and what stands before its ids.
func (s *Store) markKey(name string) string { return s.prefix + name + "/" }

var errClosed = errors.New("the client was closed")

// check checks the arguments of a call, and that the client is open: it would try again a hundred times.
func (s *Store) check(ctx context.Context, o lease.Ownership, ids ...string) error {
	if s.client == nil {
		return fmt.Errorf("%w: the store is the zero value, must come from etcdstore.New", lease.ErrInvalid)
	}
	err := sharding.ValidateCall(ctx, o, ids...)
	if err == nil && s.client.Ctx().Err() != nil {
		err = errClosed
	}
	return err
}

// explain says which shard an error is about; ctx is that of the caller.
func explain(ctx context.Context, what string, o lease.Ownership, err error) error {
	if err == nil || input.Nil(o) {
		return err
	}
	return fmt.Errorf("etcd entities of %s: %s: %w", o.Name(), what, late(ctx, err))
}

// late says that the time was over if a server does so in terms of its own. It may
// notice before we do.
func late(ctx context.Context, err error) error {
	if ctx == nil {
		return err
	}
	over := ctx.Err()
	if end, ok := ctx.Deadline(); over == nil && ok && !time.Now().Before(end) {
		over = context.DeadlineExceeded
	}
	if answer, ok := errors.AsType[rpctypes.EtcdError](err); over == nil || !ok || answer.Code() != codes.Unavailable {
		return err
	}
	return fmt.Errorf("%w: %w", over, err)
}

// Load implements sharding.EntityStore. All ids are of one moment. A key among them
// that this store did not write is lease.ErrBadRecord.
func (s *Store) Load(ctx context.Context, o lease.Ownership) ([]string, error) {
	ids, err := s.load(ctx, o)
	return ids, explain(ctx, "load", o, err)
}

func (s *Store) load(ctx context.Context, o lease.Ownership) ([]string, error) {
	if err := s.check(ctx, o); err != nil {
		return nil, err
	}
	ctx = clientv3.WithRequireLeader(ctx)
	base := s.markKey(o.Name())
	end := clientv3.GetPrefixRangeEnd(base)
	from, rev := base, int64(0)
	var ids []string
	for {
		get := clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(pageSize),
			clientv3.WithRev(rev), clientv3.WithKeysOnly())
		ops := []clientv3.Op{get}
		if rev == 0 {
			ops = append(ops, clientv3.OpPut(base, ""))
		}
		resp, err := s.client.Txn(ctx).If(s.leases.Guard(o)).Then(ops...).Commit()
		if err != nil {
			return nil, err
		}
		if !resp.Succeeded {
			return nil, stale(o)
		}
		if rev == 0 {
			rev = resp.Header.Revision
			s.marks.Store(o.Name(), rev)
		}
		page := resp.Responses[0].GetResponseRange()
		for _, kv := range page.Kvs {
			escaped := string(kv.Key[len(base):])
			if escaped == "" || strings.Contains(escaped, "/") { // the mark, or a shard's whose name has more segments
				continue
			}
			id, err := url.PathUnescape(escaped)
			if err = cmp.Or(err, sharding.ValidateEntityID(id)); err != nil {
				return nil, fmt.Errorf("key %q: %w: %v", kv.Key, lease.ErrBadRecord, err)
			}
			ids = append(ids, id)
		}
		if !page.More || len(page.Kvs) == 0 {
			return ids, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

func stale(o lease.Ownership) error {
	return fmt.Errorf("the lease has not token %d: %w", o.Token(), sharding.ErrStaleOwner)
}

// Update implements sharding.EntityStore. It is applied as a whole if at most 99
// ids change, else in batches of as many, each as a whole: first what is added,
// then what is removed. The first that fails is the last that is sent.
func (s *Store) Update(ctx context.Context, o lease.Ownership, add, remove []string) error {
	return explain(ctx, "update", o, s.update(ctx, o, add, remove))
}

func (s *Store) update(ctx context.Context, o lease.Ownership, add, remove []string) error {
	if err := s.check(ctx, o, slices.Concat(add, remove)...); err != nil {
		return err
	}
	ctx = clientv3.WithRequireLeader(ctx)
	ops := s.ops(o.Name(), add, remove)
	for done := 0; ; {
		part := ops[done:min(done+maxOps-1, len(ops))]
		if err := s.write(ctx, o, part); err != nil {
			return fmt.Errorf("after %d of %d changes: %w", done, len(ops), err)
		}
		if done += len(part); done == len(ops) {
			return nil
		}
	}
}

// ops are the changes that come to the same as add and then remove: one Txn takes
// no key twice.
func (s *Store) ops(name string, add, remove []string) []clientv3.Op {
	stays := make(map[string]bool, len(add)+len(remove))
	for _, id := range add {
		stays[id] = true
	}
	for _, id := range remove {
		stays[id] = false
	}
	var puts, deletes []clientv3.Op
	for id, stays := range stays {
		if key := s.markKey(name) + url.PathEscape(id); stays {
			puts = append(puts, clientv3.OpPut(key, ""))
		} else {
			deletes = append(deletes, clientv3.OpDelete(key))
		}
	}
	return append(puts, deletes...)
}

// write applies ops in one Txn. It is refused if o is stale or the mark has
// changed; the latter was by a write of ours whose answer did not come, by
// another call, or by another Store, and it is tried again from there.
func (s *Store) write(ctx context.Context, o lease.Ownership, ops []clientv3.Op) error {
	key := s.markKey(o.Name())
	ops = append(slices.Clip(ops), clientv3.OpPut(key, ""))
	known, _ := s.marks.Load(o.Name())
	for mark, _ := known.(int64); ; {
		guard := s.leases.Guard(o)
		resp, err := s.client.Txn(ctx).
			If(guard, clientv3.Compare(clientv3.ModRevision(key), "=", mark)).
			Then(ops...).
			Else(clientv3.OpTxn([]clientv3.Cmp{guard}, []clientv3.Op{clientv3.OpGet(key)}, nil)).
			Commit()
		if err != nil {
			return err
		}
		if resp.Succeeded {
			s.marks.Store(o.Name(), resp.Header.Revision)
			return nil
		}
		found := resp.Responses[0].GetResponseTxn()
		if !found.Succeeded {
			return stale(o)
		}
		mark = 0
		for _, kv := range found.Responses[0].GetResponseRange().Kvs {
			mark = kv.ModRevision
		}
	}
}
