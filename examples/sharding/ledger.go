//go:build linux || darwin || freebsd

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/lease"
)

// What the ledger keeps in etcd, beside the leases: entries as JSON, and balances
// as numbers.
const (
	entryPrefix   = "bank/entry/"
	balancePrefix = "bank/balance/"
)

const (
	// writeTimeout bounds one write, and attemptTimeout each of its attempts.
	writeTimeout   = 5 * time.Second
	attemptTimeout = 2 * time.Second
	attemptPause   = 50 * time.Millisecond
)

// etcdLedger is the ledger of a cluster of processes. The fence is the lease
// itself: every write is a Txn that etcd applies only while the key of the shard's
// lease stands at the revision that is the writer's token. So nothing has to be
// remembered: with the lease gone or another's, the old token fits no more.
type etcdLedger struct {
	client *clientv3.Client
	prefix string // of the leases' keys
	tell   func(report)
}

func newEtcdLedger(client *clientv3.Client, store *etcd.Store, tell func(report)) *etcdLedger {
	return &etcdLedger{client: client, prefix: store.Prefix(), tell: tell}
}

func (l *etcdLedger) open(w writer) (balance int, err error) {
	key := balancePrefix + w.Account
	resp, _, err := l.write(entry{writer: w, Kind: opened}, entryPrefix+w.Account, nil, nil, clientv3.OpGet(key))
	if err != nil {
		return 0, err
	}
	for _, kv := range resp.Responses[1].GetResponseRange().Kvs {
		return strconv.Atoi(string(kv.Value))
	}
	return opening, nil
}

func (l *etcdLedger) post(w writer, id string, amount, balance int) (isNew bool, err error) {
	key := entryPrefix + id
	_, outcome, err := l.write(entry{writer: w, Kind: posted, ID: id, Amount: amount, Balance: balance}, key,
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		[]clientv3.Op{clientv3.OpPut(balancePrefix+w.Account, strconv.Itoa(balance))})
	return outcome == written, err
}

func (l *etcdLedger) note(w writer, number int) error {
	key := fmt.Sprintf("%s%s/memo/%d", entryPrefix, w.Account, number)
	_, _, err := l.write(entry{writer: w, Kind: noted, Number: number}, key,
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}, nil)
	return err
}

// write puts e under key, and does what goes with it, if the token is the lease's:
// and both only if the conditions hold. The error is lease.ErrStale, or else what
// was done is not known. A write does not end with the entity's context: that one
// who lost the shard gets nowhere is the ledger's business, and to be seen here.
func (l *etcdLedger) write(e entry, key string, once []clientv3.Cmp, with []clientv3.Op, besides ...clientv3.Op) (*clientv3.TxnResponse, outcome, error) {
	e.At, e.Outcome = machineNow(), written
	value, err := json.Marshal(e)
	if err != nil {
		return nil, "", err
	}
	put := append([]clientv3.Op{clientv3.OpPut(key, string(value))}, with...)
	ops := append([]clientv3.Op{clientv3.OpTxn(once, put, nil)}, besides...)
	fence := clientv3.Compare(clientv3.ModRevision(l.prefix+e.Shard), "=", int64(e.Token))
	resp, err := l.commit(func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return l.client.Txn(ctx).If(fence).Then(ops...).Commit()
	})
	if err != nil {
		return nil, "", err
	}
	switch {
	case !resp.Succeeded:
		e.Outcome, err = refused, fmt.Errorf("%w: %d is not the revision of %s%s", lease.ErrStale, e.Token, l.prefix, e.Shard)
	case !resp.Responses[0].GetResponseTxn().Succeeded:
		e.Outcome = repeated
	}
	l.tell(report{At: machineNow(), What: didWrite, Entry: &e, Revision: resp.Header.Revision})
	return resp, e.Outcome, err
}

// commit repeats a Txn whose outcome is not known; writes that happen once only
// allow that.
func (l *etcdLedger) commit(txn func(context.Context) (*clientv3.TxnResponse, error)) (*clientv3.TxnResponse, error) {
	for end := time.Now().Add(writeTimeout); ; time.Sleep(attemptPause) {
		ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
		resp, err := txn(ctx)
		cancel()
		if err == nil || time.Now().After(end) {
			return resp, err
		}
	}
}

// entryOf reads what a key of the ledger says.
func entryOf(kv *mvccpb.KeyValue) (e entry, err error) {
	if err := json.Unmarshal(kv.Value, &e); err != nil {
		return e, fmt.Errorf("%s: %w", kv.Key, err)
	}
	return e, nil
}

func machineNow() time.Duration { return machineClock{}.Now().Mono }
