//go:build unix && !race

package etcd_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// TestIdleRequests: what a server is asked by many Keepers that hold something each and
// watch several prefixes, while nothing happens. Watches that run cost nothing but a
// probe for all those of a Keeper. On a machine that stalls for a quarter of a TTL, probes
// come too late, and watches are begun anew, which is counted apart: that it is done for
// no other reason is asserted in package lease, on fake time.
func TestIdleRequests(t *testing.T) {
	tier.NightlyOnly(t, "TestAHandOverTakesTwoRequests counts requests of a server")
	t.Parallel()
	c := etcdtest.Start(t)
	prefix := fresh()
	const keepers, watches, ttl = 20, 5, 5 * time.Second
	var begun atomic.Int64 // watches
	counting := func(cfg *clientv3.Config) {
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainStreamInterceptor(
			func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				s, err := open(ctx, desc, cc, method, opts...)
				return watchesBegun{s, &begun}, err
			}))
	}
	for i := range keepers {
		k, err := lease.NewKeeper(newStore(t, c.Client(t, counting), prefix), lease.Config{ID: fmt.Sprint("n", i), TTL: ttl, Logger: zap.NewNop()})
		require.NoError(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			_ = k.Close(ctx)
		})
		h := must(k.Lease(fmt.Sprint("job/", i)))(t)
		won := must(h.Acquire(t.Context()))(t)
		require.True(t, won)
		for j := range watches {
			must(k.Watch(fmt.Sprintf("prefix-%d/", j), func(store.Event) {}))(t)
		}
	}
	time.Sleep(2 * ttl) // all has begun
	count := func() (reads, watched float64) {
		m := must(c.Members()[0].Metrics(t.Context()))(t)
		return m.Sum("grpc_server_handled_total", `grpc_method="Range"`) + m.Sum("grpc_server_handled_total", `grpc_method="Txn"`),
			m.Sum("grpc_server_msg_received_total", `grpc_method="Watch"`)
	}
	const ttls = 4
	require.NotZero(t, begun.Load())
	before := begun.Load()
	reads1, watched1 := count()
	time.Sleep(ttls * ttl)
	reads2, watched2 := count()
	again := float64(begun.Load() - before)
	reads, watched := (reads2-reads1)/keepers/ttls, (watched2-watched1)/keepers/ttls
	t.Logf("by a Keeper with %d watches, in a TTL: %.2f reads, %.2f messages to watches; %.1f requests/s in all; %v watches begun anew", watches, reads, watched,
		(reads+watched)*keepers/ttl.Seconds(), again)
	again /= keepers * ttls
	require.LessOrEqual(t, reads, 1.3+2*again, "reads of a Keeper in a TTL: a listing in three, a probe in one and a half")
	require.LessOrEqual(t, watched, 0.9+3*again, "messages to watches of a Keeper in a TTL: a probe in one and a half")
	require.Positive(t, watched, "none is probed")
}

// watchesBegun is a stream on which the watches that are begun are counted.
type watchesBegun struct {
	grpc.ClientStream
	n *atomic.Int64
}

func (s watchesBegun) SendMsg(m any) error {
	if r, ok := m.(*pb.WatchRequest); ok && r.GetCreateRequest() != nil {
		s.n.Add(1)
	}
	return s.ClientStream.SendMsg(m)
}
