package etcd_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
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
