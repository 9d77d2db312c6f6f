package etcd_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/store"
)

// countedKV returns a store, and how many requests for keys it has made.
func countedKV(t *testing.T) (store.Store, *atomic.Int64) {
	var n atomic.Int64
	client := server(t).Client(t, func(cfg *clientv3.Config) {
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if strings.Contains(method, "etcdserverpb.KV/") {
					n.Add(1)
				}
				return invoke(ctx, method, req, reply, cc, opts...)
			}))
	})
	return newStore(t, client, fresh()), &n
}

// A name is down from the transfer's request to the answer of the claim that takes it up.
func TestAHandOverTakesTwoRequests(t *testing.T) {
	s, n := countedKV(t)
	from, to := session(t, s, "from"), session(t, s, "to")
	rec := win(t, s, from, "job")
	offer := store.Offer{Name: "job", Owner: to.Owner, Session: to.ID, TTL: to.TTL, Nonce: uint64(ids.Add(1)), Lifetime: lasting}

	n.Store(0)
	outs, err := s.(store.Transferrer).Transfer(t.Context(), []store.Transfer{{Held: rec.Held(), To: offer, Metadata: map[string]string{}}})
	require.NoError(t, err)
	require.True(t, outs[0].OK, "%+v", outs[0])
	require.EqualValues(t, 1, n.Load())

	given := outs[0].Record.Token
	outs, err = s.Acquire(t.Context(), to, []store.Claim{{Name: "job", Nonce: uint64(ids.Add(1)), Supersedes: given}})
	require.NoError(t, err)
	require.True(t, outs[0].OK, "%+v", outs[0])
	require.Equal(t, given, outs[0].Replaced)
	require.EqualValues(t, 2, n.Load())
}

// A record of the same incarnation is superseded under whichever of its sessions it
// stands, at the cost of a second request; what another owns is not.
func TestSupersedingUnderAnotherSession(t *testing.T) {
	s, n := countedKV(t)
	first := session(t, s, "a")
	again := store.Session{ID: store.SessionID(ids.Add(1)), TTL: lasting, Owner: first.Owner}
	g := must(s.OpenSession(t.Context(), again))(t)
	require.NoError(t, g.Err)
	rec := win(t, s, first, "job")
	claim := store.Claim{Name: "job", Nonce: uint64(ids.Add(1)), Supersedes: rec.Token}

	n.Store(0)
	outs := must(s.Acquire(t.Context(), session(t, s, "b"), []store.Claim{claim}))(t)
	require.False(t, outs[0].OK)
	require.Equal(t, rec, outs[0].Record)
	require.EqualValues(t, 1, n.Load())

	outs = must(s.Acquire(t.Context(), again, []store.Claim{claim}))(t)
	require.True(t, outs[0].OK, "%+v", outs[0])
	require.Equal(t, rec.Token, outs[0].Replaced)
	require.EqualValues(t, 3, n.Load())
}
