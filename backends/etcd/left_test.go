package etcd_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/store"
)

// What a record has left is told of a name that is asked for alone. It costs a request, and
// holds nothing up: without an answer it is not known.
func TestGetTellsWhatIsLeft(t *testing.T) {
	var asked atomic.Int64
	var hang atomic.Bool
	client := server(t).Client(t, func(cfg *clientv3.Config) {
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if strings.HasSuffix(method, "/LeaseTimeToLive") {
					asked.Add(1)
					if hang.Load() {
						<-ctx.Done()
						return ctx.Err()
					}
				}
				return invoke(ctx, method, req, reply, cc, opts...)
			}))
	})
	s := newStore(t, client, fresh())
	sess := session(t, s, "a")
	before := time.Now().Add(-time.Millisecond)
	rec := win(t, s, sess, "job")
	win(t, s, sess, "other")
	require.Zero(t, asked.Load())
	require.WithinRange(t, rec.Granted, before, time.Now())

	recs := must(s.Get(t.Context(), "job"))(t)
	require.Positive(t, recs[0].Left)
	require.LessOrEqual(t, recs[0].Left, sess.TTL)
	require.True(t, recs[0].Granted.Equal(rec.Granted))
	require.EqualValues(t, 1, asked.Load())

	recs = must(s.Get(t.Context(), "job", "other"))(t)
	require.Len(t, recs, 2)
	require.Zero(t, recs[0].Left)
	recs = must(s.Get(t.Context(), "none"))(t)
	require.Empty(t, recs)
	require.EqualValues(t, 1, asked.Load())

	hang.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	recs = must(s.Get(ctx, "job"))(t)
	require.NoError(t, ctx.Err(), "it waited for what is left")
	require.Len(t, recs, 1)
	require.Zero(t, recs[0].Left)
}

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

func TestBadInput(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	s := must(etcd.New(client))(t)
	inputtest.Contexts(t, s)
	inputtest.Zeros(t, nil, new(etcd.Store))

	_, err = etcd.New(&clientv3.Client{})
	require.ErrorIs(t, err, store.ErrInvalid)
	require.ErrorContains(t, err, "clientv3.New")
	_, err = etcd.New(client, nil)
	require.ErrorIs(t, err, store.ErrInvalid)
	never := s.Guard(nil)
	require.Equal(t, never, s.Guard((*owner)(nil)), "a nil pointer is no ownership, and nothing is applied")

	inputtest.Options(t, map[string][]any{
		"WithPrefix": {etcd.WithPrefix, "p/"},
		"WithLogger": {etcd.WithLogger, zap.NewNop()},
	}, nil, map[string]string{"WithLogger(nil)": "the default"}, func(o etcd.Option) error {
		_, err := etcd.New(client, o)
		return err
	})
}

type owner struct{ name string }

func (o *owner) Name() string       { return o.name }
func (o *owner) Token() store.Token { return 1 }
