//go:build unix && !race

package etcd_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
)

// TestIdleRequests: what a server is asked by many Keepers that hold something each and
// watch several prefixes, while nothing happens. Watches that run cost nothing but a
// probe for all those of a Keeper. On a machine that stalls for a quarter of a TTL, probes
// come too late, and watches are begun anew: so the TTL is a long one, the figures are
// those of the best of a few times, and not taken under the race detector, beside the
// other tests that it slows down.
func TestIdleRequests(t *testing.T) {
	tier.NightlyOnly(t, "TestAHandOverTakesTwoRequests counts requests of a server")
	t.Parallel()
	c := etcdtest.Start(t)
	prefix := fresh()
	const keepers, watches, ttl = 20, 5, 5 * time.Second
	for i := range keepers {
		k, err := lease.NewKeeper(newStore(t, c.Client(t), prefix), lease.Config{ID: fmt.Sprint("n", i), TTL: ttl, Logger: zap.NewNop()})
		require.NoError(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			_ = k.Close(ctx)
		})
		h, err := k.Lease(fmt.Sprint("job/", i))
		require.NoError(t, err)
		won, err := h.Acquire(t.Context())
		require.NoError(t, err)
		require.True(t, won)
		for j := range watches {
			_, err := k.Watch(fmt.Sprintf("prefix-%d/", j), func(lease.Event) {})
			require.NoError(t, err)
		}
	}
	time.Sleep(2 * ttl) // all has begun
	count := func() (reads, watched float64) {
		m, err := c.Members()[0].Metrics(t.Context())
		require.NoError(t, err)
		return m.Sum("grpc_server_handled_total", `grpc_method="Range"`) + m.Sum("grpc_server_handled_total", `grpc_method="Txn"`),
			m.Sum("grpc_server_msg_received_total", `grpc_method="Watch"`)
	}
	const ttls = 4
	var reads, watched float64
	for tries := 0; tries == 0 || tries < 5 && (reads > 1.5 || watched > 1.2); tries++ {
		reads1, watched1 := count()
		time.Sleep(ttls * ttl)
		reads2, watched2 := count()
		reads, watched = (reads2-reads1)/keepers/ttls, (watched2-watched1)/keepers/ttls
		t.Logf("by a Keeper with %d watches, in a TTL: %.2f reads, %.2f messages to watches; %.1f requests/s in all", watches, reads, watched,
			(reads+watched)*keepers/ttl.Seconds())
	}
	require.LessOrEqual(t, reads, 1.5, "reads of a Keeper in a TTL: a listing in three, a probe in one and a half")
	require.LessOrEqual(t, watched, 1.2, "messages to watches of a Keeper in a TTL: a probe in one and a half")
	require.Positive(t, watched, "none is probed")
}
