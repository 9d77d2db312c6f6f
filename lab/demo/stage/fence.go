//go:build linux

package stage

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/lease"
)

const (
	// writeTimeout bounds one write, and attemptTimeout each of its attempts.
	writeTimeout   = 5 * time.Second
	attemptTimeout = 2 * time.Second
	attemptPause   = 50 * time.Millisecond
)

// Write is a fenced write to a ledger in etcd. The fence is the lease itself: the
// write is a Txn that etcd applies only while the lease's key stands at the revision
// that is the writer's token. So nothing has to be remembered: with the lease gone or
// another's, the old token fits no more.
type Write struct {
	Lease   string // its key
	Token   lease.Token
	Once    []clientv3.Cmp // Put is done if these hold, too: once only
	Put     []clientv3.Op
	Besides []clientv3.Op // done in any case; answered from Responses[1] on
}

// Do writes. The error is lease.ErrStale, and then there is a response, or else what
// was done is not known. A write does not end with the context of who writes: that
// one who lost the lease gets nowhere is the ledger's business, and to be seen there.
func (w Write) Do(client *clientv3.Client) (*clientv3.TxnResponse, Outcome, error) {
	if w.Token == 0 { // the revision of a key that is absent: the fence would stand open
		return nil, 0, fmt.Errorf("%s: %w: token 0", w.Lease, lease.ErrInvalid)
	}
	ops := append([]clientv3.Op{clientv3.OpTxn(w.Once, w.Put, nil)}, w.Besides...)
	fence := clientv3.Compare(clientv3.ModRevision(w.Lease), "=", int64(w.Token))
	resp, err := commit(func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return client.Txn(ctx).If(fence).Then(ops...).Commit()
	})
	switch {
	case err != nil:
		return nil, 0, err
	case !resp.Succeeded:
		return resp, Refused, fmt.Errorf("%w: %d is not the revision of %s", lease.ErrStale, w.Token, w.Lease)
	case !resp.Responses[0].GetResponseTxn().Succeeded:
		return resp, Repeated, nil
	}
	return resp, Written, nil
}

// commit repeats a Txn whose outcome is not known; writes that happen once only
// allow that.
func commit(txn func(context.Context) (*clientv3.TxnResponse, error)) (*clientv3.TxnResponse, error) {
	for end := time.Now().Add(writeTimeout); ; time.Sleep(attemptPause) {
		ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
		resp, err := txn(ctx)
		cancel()
		if err == nil || time.Now().After(end) {
			return resp, err
		}
	}
}
