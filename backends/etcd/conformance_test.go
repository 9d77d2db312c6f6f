//go:build unix

package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/leasetest"
)

// TestConformance runs the kit against one server.
func TestConformance(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t)
	client := c.Client(t)
	factory := func(tb leasetest.TB) func() lease.Store {
		prefix := fresh()
		return func() lease.Store { return newStore(tb, client, prefix) }
	}
	leasetest.Run(t, factory,
		leasetest.TTL(2*time.Second),
		leasetest.Unreachable(func(tb leasetest.TB) func() lease.Store {
			route, err := c.NewRoute()
			if err != nil {
				tb.Fatalf("%v", err)
			}
			prefix := fresh()
			cut, err := route.NewClient()
			if err != nil {
				tb.Fatalf("%v", err)
			}
			tb.Cleanup(func() { cut.Close() })
			route.Cut()
			return func() lease.Store { return newStore(tb, cut, prefix) }
		}),
		leasetest.BadRecords(func(tb leasetest.TB) (func() lease.Store, func(string)) {
			prefix := fresh()
			var n int
			return func() lease.Store { return newStore(tb, client, prefix) }, func(name string) {
				bad := []string{"", "garbage", "hf1 ", "hf1 000000000000000g {}", "hf1 0000000000000001 {", "hf2 0000000000000001 {}"}
				n++
				_, err := client.Put(context.Background(), prefix+name, bad[n%len(bad)])
				require.NoError(t, err)
			}
		}),
		leasetest.Restart(func(tb leasetest.TB) (func() lease.Store, func()) {
			own := etcdtest.Start(t)
			prefix, client := fresh(), own.Client(t)
			return func() lease.Store { return newStore(tb, client, prefix) }, func() {
				if err := own.Members()[0].Restart(tb.Context()); err != nil {
					tb.Fatalf("%v", err)
				}
			}
		}),
	)
}

// TestConformanceOnThree runs the kit against a cluster, each store on a client
// that knows all members.
func TestConformanceOnThree(t *testing.T) {
	tier.NightlyOnly(t, "TestConformance is the same on one server")
	t.Parallel()
	alone(t)
	c := etcdtest.Start(t, etcdtest.WithMembers(3))
	client := c.Client(t)
	leasetest.Run(t, func(tb leasetest.TB) func() lease.Store {
		prefix := fresh()
		return func() lease.Store { return newStore(tb, client, prefix) }
	}, leasetest.TTL(2*time.Second))
}
