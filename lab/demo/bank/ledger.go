//go:build linux

package bank

import (
	"encoding/json"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backends/etcd"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
)

// What the ledger keeps in etcd, beside the leases: entries as JSON, and balances
// as numbers.
const (
	entryPrefix   = "bank/entry/"
	balancePrefix = "bank/balance/"
)

// etcdLedger is the ledger of a cluster of processes. The fence is the shard's lease
// itself: see stage.Write.
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
	return outcome == stage.Written, err
}

func (l *etcdLedger) note(w writer, number int) error {
	key := fmt.Sprintf("%s%s/memo/%d", entryPrefix, w.Account, number)
	_, _, err := l.write(entry{writer: w, Kind: noted, Number: number}, key,
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}, nil)
	return err
}

// write puts e under key, and does what goes with it, if the token is the lease's:
// and both only if the conditions hold. The error is lease.ErrStale, or else what
// was done is not known.
func (l *etcdLedger) write(e entry, key string, once []clientv3.Cmp, with []clientv3.Op, besides ...clientv3.Op) (*clientv3.TxnResponse, stage.Outcome, error) {
	e.At, e.Outcome = stage.MachineNow(), stage.Written
	value, err := json.Marshal(e)
	if err != nil {
		return nil, 0, err
	}
	resp, outcome, err := stage.Write{Lease: l.prefix + e.Shard, Token: e.Token, Once: once,
		Put: append([]clientv3.Op{clientv3.OpPut(key, string(value))}, with...), Besides: besides}.Do(l.client)
	if resp != nil {
		e.Outcome = outcome
		l.tell(report{At: stage.MachineNow(), What: didWrite, Entry: &e, Revision: resp.Header.Revision})
	}
	return resp, outcome, err
}

// entryOf reads what a key of the ledger says.
func entryOf(kv *mvccpb.KeyValue) (e entry, err error) {
	if err := json.Unmarshal(kv.Value, &e); err != nil {
		return e, fmt.Errorf("%s: %w", kv.Key, err)
	}
	return e, nil
}
