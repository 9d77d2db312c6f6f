//go:build unix

package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// TestConformance runs the kit against one server.
func TestConformance(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t)
	client := c.Client(t)
	factory := func(tb storetest.TB) func() store.Store {
		prefix := fresh()
		return func() store.Store { return newStore(tb, client, prefix) }
	}
	storetest.Run(t, factory,
		storetest.TTL(2*time.Second),
		storetest.Unreachable(func(tb storetest.TB) func() store.Store {
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
			return func() store.Store { return newStore(tb, cut, prefix) }
		}),
		storetest.BadRecords(func(tb storetest.TB) (func() store.Store, func(string)) {
			prefix := fresh()
			var n int
			return func() store.Store { return newStore(tb, client, prefix) }, func(name string) {
				bad := []string{"", "garbage", "hf1 ", "hf1 000000000000000g {}", "hf1 0000000000000001 {", "hf2 0000000000000001 {}"}
				n++
				_, err := client.Put(context.Background(), prefix+name, bad[n%len(bad)])
				require.NoError(t, err)
			}
		}),
		storetest.Restart(func(tb storetest.TB) (func() store.Store, func()) {
			own := etcdtest.Start(t)
			prefix, client := fresh(), own.Client(t)
			return func() store.Store { return newStore(tb, client, prefix) }, func() {
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
	storetest.Run(t, func(tb storetest.TB) func() store.Store {
		prefix := fresh()
		return func() store.Store { return newStore(tb, client, prefix) }
	}, storetest.TTL(2*time.Second))
}
