package sharding_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// The store's data is lost under live nodes. Tokens are far above what an empty store
// begins with, and all of it has watched: nodes, members, tables, routes. When that is
// accepted, every shard is hosted and reached again from everywhere.
func TestShardsComeBackAfterTheStoreHasLostItsData(t *testing.T) {
	bubble(t, func(c *cluster) {
		sw := faultstore.NewSwitch(c.store)
		require.NoError(t, faultstore.Restore(context.Background(), c.store, nil, 5000))
		c.front = sw
		ns := c.nodes("a", "b", "c")
		for _, n := range ns {
			n.start(8)
		}
		c.settled(time.Minute, ns...)
		number := 0
		reached := func() {
			t.Helper()
			for _, n := range ns {
				for i := range 16 {
					number++
					var err error
					for until := time.Now().Add(2 * ttl); time.Now().Before(until); {
						if _, err = sharding.Ask[done](contextFor(time.Second), n.region, fmt.Sprint("id", i),
							job{n.id, number}); err == nil {
							break
						}
					}
					require.NoError(t, err, "%s: id%d", n.id, i)
				}
			}
		}
		reached()

		c.store = memory.New()
		sw.To(c.store)
		time.Sleep(2 * ttl)
		for _, n := range ns {
			require.ErrorIs(t, n.keeper.Health(context.Background()), lease.ErrSetback, n.id)
		}
		for _, n := range ns {
			require.NoError(t, n.keeper.AcceptHistory(context.Background()))
		}
		c.settled(2*ttl, ns...)
		reached()
		for _, n := range ns {
			require.NoError(t, n.keeper.Health(context.Background()))
		}
		c.log.check()
	})
}
