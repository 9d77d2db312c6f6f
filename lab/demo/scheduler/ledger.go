//go:build linux

package scheduler

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
)

// What the ledger keeps in etcd, beside the leases.
const (
	ledgerPrefix = "journal/scheduler/"
	beginKey     = ledgerPrefix + "begin"
	tickKey      = ledgerPrefix + "tick"
	jobPrefix    = ledgerPrefix + "job/"
)

// etcdLedger is the fenced resource of a cluster of processes. The fence is the
// lease itself: see stage.Write.
type etcdLedger struct {
	client *clientv3.Client
	lease  string // the key of the scheduler's lease
	tell   func(report)
}

func newEtcdLedger(client *clientv3.Client, store *etcd.Store, tell func(report)) (*etcdLedger, error) {
	name, err := lease.Name("singleton", schedulerName)
	if err != nil {
		return nil, err
	}
	return &etcdLedger{client: client, lease: store.Prefix() + name, tell: tell}, nil
}

// stamp is the value of every key of the ledger: who wrote it, and when.
type stamp struct {
	Node   string
	Token  lease.Token
	At     time.Duration // just before it was sent, by the machine's clock
	Kind   entryKind
	Number int
}

// begin implements ledger. The last tick is the version of its key.
func (l *etcdLedger) begin(node string, token lease.Token) (ticks int, err error) {
	resp, err := l.write(stamp{Node: node, Token: token, Kind: began}, beginKey, nil, clientv3.OpGet(tickKey))
	if err != nil {
		return 0, err
	}
	for _, kv := range resp.Responses[1].GetResponseRange().Kvs {
		ticks = int(kv.Version)
	}
	return ticks, nil
}

func (l *etcdLedger) tick(node string, token lease.Token, number int) error {
	_, err := l.write(stamp{Node: node, Token: token, Kind: ticked, Number: number}, tickKey,
		[]clientv3.Cmp{clientv3.Compare(clientv3.Version(tickKey), "=", int64(number-1))})
	return err
}

func (l *etcdLedger) job(node string, token lease.Token, number int) error {
	key := jobPrefix + strconv.Itoa(number)
	_, err := l.write(stamp{Node: node, Token: token, Kind: worked, Number: number}, key,
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)})
	return err
}

// write puts s under key, if the token is the lease's, and once only: if besides
// the conditions hold. The error is lease.ErrStale, or else what was done is not
// known.
func (l *etcdLedger) write(s stamp, key string, once []clientv3.Cmp, besides ...clientv3.Op) (*clientv3.TxnResponse, error) {
	s.At = stage.MachineNow()
	value, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	resp, outcome, err := stage.Write{Lease: l.lease, Token: s.Token, Once: once,
		Put: []clientv3.Op{clientv3.OpPut(key, string(value))}, Besides: besides}.Do(l.client)
	if resp != nil {
		l.tell(report{At: stage.MachineNow(), What: didWrite, Token: s.Token, Kind: s.Kind, Number: s.Number,
			Outcome: outcome, Revision: resp.Header.Revision})
	}
	return resp, err
}

// entryOf reads what a key of the ledger says.
func entryOf(kv *mvccpb.KeyValue) (entry, error) {
	var s stamp
	if err := json.Unmarshal(kv.Value, &s); err != nil {
		return entry{}, fmt.Errorf("%s: %w", kv.Key, err)
	}
	return entry{node: s.Node, token: s.Token, at: s.At, kind: s.Kind, number: s.Number, outcome: stage.Written}, nil
}
