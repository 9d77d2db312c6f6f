package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/store"
)

// writer makes conditional writes of records.
type writer struct{ records }

// change is one conditional write of one key, part of a Txn: if all of cmps hold
// then do, else tell what stands.
type change struct {
	index int // of the outcome
	key   string
	cmps  []clientv3.Cmp
	do    clientv3.Op
	won   store.Record // what stands if it is applied; without its token
	over  store.Token  // of what that replaces, by cmps
	while store.Held   // what has to stand, by cmps; zero: nothing
}

// apply sends changes in as few Txns as the servers take, and settles outs.
func (w *writer) apply(ctx context.Context, op string, changes []change, outs []store.Outcome) error {
	limit := len(changes)
	for len(changes) > 0 {
		part := batch(changes[:min(limit, len(changes))])
		err := w.commit(ctx, op, part, outs)
		switch {
		case tooLarge(err) && len(part) > 1:
			limit = len(part) / 2
			continue
		case tooLarge(err): // by itself: a definite refusal of this one
			outs[part[0].index] = store.Outcome{
				Err: fmt.Errorf("%w: the record is larger than the server takes: %w", store.ErrInvalid, err)}
		case err != nil:
			return err
		}
		changes = changes[len(part):]
	}
	return nil
}

// tooLarge: the server refused a request for its bytes, or the client did not send
// it; nothing of it was applied. That a resource is exhausted says by itself nothing
// of the kind: so answers a mesh between client and server that limits rates.
func tooLarge(err error) bool {
	return errors.Is(err, rpctypes.ErrRequestTooLarge) || status.Code(err) == codes.ResourceExhausted &&
		strings.Contains(err.Error(), "trying to send message larger than max (")
}

// batch takes as many changes as one Txn may carry: no key twice. To their number a server adds the
// longest list of conditions.
func batch(changes []change) []change {
	keys, cost := make(map[string]bool, min(maxOps, len(changes))), 0
	for i, c := range changes {
		cost = max(cost, len(c.cmps), 1)
		if i > 0 && (i+1+cost > maxOps || keys[c.key]) {
			return changes[:i]
		}
		keys[c.key] = true
	}
	return changes
}

func (w *writer) commit(ctx context.Context, op string, part []change, outs []store.Outcome) error {
	txn, alone := w.client.KV.Txn(ctx), len(part) == 1
	if alone { // a Txn of its own, not nested in another: a tenth faster
		c := part[0]
		txn = txn.If(c.cmps...).Then(c.do).Else(w.instead(c)...)
	} else {
		ops := make([]clientv3.Op, len(part))
		for i, c := range part {
			ops[i] = clientv3.OpTxn(c.cmps, []clientv3.Op{c.do}, w.instead(c))
		}
		txn = txn.Then(ops...)
	}
	resp, err := w.txn(ctx, op, txn)
	if err != nil {
		return err
	}
	for i, c := range part {
		r := (*pb.TxnResponse)(resp)
		if !alone {
			r = resp.Responses[i].GetResponseTxn()
		}
		if !r.Succeeded {
			outs[c.index] = w.refused(c, r.Responses)
			continue
		}
		if c.won.Name != "" {
			c.won.Token = store.Token(resp.Header.Revision)
		}
		outs[c.index] = store.Outcome{OK: true, Record: c.won, Replaced: c.over}
	}
	return nil
}

// instead is what is asked for if a change is not made: why.
func (w *writer) instead(c change) []clientv3.Op {
	if c.while == (store.Held{}) {
		return []clientv3.Op{clientv3.OpGet(c.key)}
	}
	return []clientv3.Op{clientv3.OpGet(c.key), clientv3.OpGet(w.key(c.while.Name))}
}

// refused is the outcome of a change that was refused.
func (w *writer) refused(c change, rs []*pb.ResponseOp) store.Outcome {
	if c.while != (store.Held{}) {
		kvs := rs[1].GetResponseRange().GetKvs()
		if len(kvs) == 0 || !w.isHeld(kvs[0], c.while) {
			return store.Outcome{Err: fmt.Errorf("etcd acquire %q: %w: %q", c.won.Name, store.ErrParentLost, c.while.Name)}
		}
	}
	kvs := rs[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		return store.Outcome{}
	}
	rec, err := w.decode(kvs[0])
	if err != nil {
		return store.Outcome{Err: err}
	}
	return store.Outcome{Record: rec}
}

func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

// exactly is the condition that a key is this very ownership.
func (w *writer) exactly(h store.Held) []clientv3.Cmp {
	k := w.key(h.Name)
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(k), "=", int64(h.Token)),
		clientv3.Compare(clientv3.Value(k), ">", noncePrefix(h.Nonce)),
		clientv3.Compare(clientv3.Value(k), "<", nonceAfter(h.Nonce)),
	}
}

// isHeld tells whether exactly would hold of a key.
func (w *writer) isHeld(kv *mvccpb.KeyValue, h store.Held) bool {
	return store.Token(kv.ModRevision) == h.Token && strings.HasPrefix(string(kv.Value), noncePrefix(h.Nonce))
}
