package etcd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/store"
)

// exhaustedKV answers every Txn of more than most operations with err.
type exhaustedKV struct {
	clientv3.KV
	err  error
	most int
	sent []int // operations of each Txn
}

type exhaustedTxn struct {
	clientv3.Txn
	kv  *exhaustedKV
	ops int
}

func (kv *exhaustedKV) Txn(context.Context) clientv3.Txn { return &exhaustedTxn{kv: kv} }

func (x *exhaustedTxn) If(...clientv3.Cmp) clientv3.Txn { return x }

func (x *exhaustedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	x.ops = len(ops)
	return x
}

func (x *exhaustedTxn) Else(...clientv3.Op) clientv3.Txn { return x }

func (x *exhaustedTxn) Commit() (*clientv3.TxnResponse, error) {
	x.kv.sent = append(x.kv.sent, x.ops)
	if x.ops > x.kv.most {
		return nil, x.kv.err
	}
	resp := &clientv3.TxnResponse{Succeeded: true, Header: &etcdserverpb.ResponseHeader{Revision: 7}}
	for range x.ops {
		one := &etcdserverpb.TxnResponse{Succeeded: true}
		resp.Responses = append(resp.Responses, &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseTxn{ResponseTxn: one}})
	}
	return resp, nil
}

// acquireOver acquires four names over such a server.
func acquireOver(t *testing.T, kv *exhaustedKV, names int) (*Store, []store.Outcome, error) {
	client := clientv3.NewCtxClient(t.Context())
	client.KV = kv
	s := new(Store)
	s.client, s.prefix = client, "p/"
	s.ops.Store(maxOps)
	sess := store.Session{ID: 1, Owner: store.Owner{ID: "n", Incarnation: "i"}, TTL: time.Second}
	claims := make([]store.Claim, names)
	for i := range claims {
		claims[i] = store.Claim{Name: strings.Repeat("x", i+1), Nonce: 1}
	}
	outs, err := s.Acquire(t.Context(), sess, claims)
	return s, outs, err
}

// TestExhaustionThatIsNoRefusal: a mesh between client and server answers so when it
// limits rates, and a client when an answer is too large for it. Whether the request
// was applied is not known then, and it is refused for no record's size.
func TestExhaustionThatIsNoRefusal(t *testing.T) {
	for _, says := range []string{"", "rate limited", "too many requests", "upstream: message too large",
		"grpc: received message larger than max (5 vs. 4)", "grpc: received message larger than max length allowed on current machine (5 vs. 4)"} {
		for _, names := range []int{1, 4} {
			kv := &exhaustedKV{err: status.Error(codes.ResourceExhausted, says)}
			s, outs, err := acquireOver(t, kv, names)
			require.Error(t, err, says)
			require.Nil(t, outs)
			require.False(t, errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrSessionGone), "%v is definite", err)
			require.Len(t, kv.sent, 1, "it is for the caller to try again")
			if names > 1 && tooMuch(kv.err) {
				require.Less(t, s.ops.Load(), int32(names), "and then with less at a time")
			} else {
				require.EqualValues(t, maxOps, s.ops.Load())
			}
		}
	}
}

// TestExhaustionThatIsARefusal: what the client did not send, or the server refused
// for its size, is tried with less, and refused by itself.
func TestExhaustionThatIsARefusal(t *testing.T) {
	for _, refusal := range []error{
		status.Error(codes.ResourceExhausted, "trying to send message larger than max (5 vs. 4)"),
		rpctypes.ErrGRPCRequestTooLarge,
	} {
		kv := &exhaustedKV{err: refusal, most: 2}
		_, outs, err := acquireOver(t, kv, 4)
		require.NoError(t, err)
		require.Equal(t, []int{4, 2, 2}, kv.sent)
		for _, out := range outs {
			require.True(t, out.OK)
		}
		_, outs, err = acquireOver(t, &exhaustedKV{err: refusal}, 1)
		require.NoError(t, err)
		require.ErrorIs(t, outs[0].Err, store.ErrInvalid)
		require.ErrorContains(t, outs[0].Err, "larger than the server takes")
	}
}
