package etcd

import (
	"math"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Guard is the comparison that fences data in etcd: a Txn with it is applied only
// while o still owns its name.
//
//	client.Txn(ctx).If(store.Guard(o)).Then(clientv3.OpPut("balance", "17")).Commit()
//
// It fails closed: without an ownership to compare with (o is nil, its name is no
// lease name, or its token is 0, as that of a lease without tokens) the comparison
// never holds, and no Txn with it is applied.
func (s *Store) Guard(o lease.Ownership) clientv3.Cmp {
	var name string
	var token store.Token
	if !input.Nil(o) {
		name, token = o.Name(), o.Token() // once: they may change
	}
	if token == 0 || token > math.MaxInt64 || store.ValidateName(name) != nil {
		// The mod revision of a key that is absent is 0, and none is below.
		return clientv3.Compare(clientv3.ModRevision(s.prefix), "<", 0)
	}
	return clientv3.Compare(clientv3.ModRevision(s.key(name)), "=", int64(token))
}
