package pername_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
)

// The engine over a backend that knows names only: neither sessions nor lists
// nor watches nor transfers.
func TestAKeeperOverNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newNameMap()
		keeper := func(id string) *lease.Keeper {
			k, err := lease.NewKeeper(must(t, m), lease.Config{ID: id, TTL: ttl})
			require.NoError(t, err)
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_ = k.Close(ctx)
			})
			return k
		}
		a, b := keeper("a"), keeper("b")
		handle := func(k *lease.Keeper, name string) *lease.Handle {
			h, err := k.Lease(name)
			require.NoError(t, err)
			return h
		}
		acquire := func(h *lease.Handle) bool {
			ok, err := h.Acquire(t.Context())
			require.NoError(t, err)
			return ok
		}
		var mine, theirs []*lease.Handle
		for i := range 5 {
			mine = append(mine, handle(a, fmt.Sprint("n", i)))
			theirs = append(theirs, handle(b, fmt.Sprint("n", i)))
			require.True(t, acquire(mine[i]))
		}
		for range 100 {
			time.Sleep(ttl / 10)
			for i, h := range mine {
				require.True(t, h.CheckAlive())
				require.True(t, m.isOf(h.Name(), "a"), "n%d", i)
			}
		}
		require.False(t, acquire(theirs[0]))

		m.remove("n0") // a definite loss is one name's
		time.Sleep(ttl / 2)
		require.False(t, mine[0].CheckAlive())
		require.True(t, mine[1].CheckAlive())
		require.True(t, acquire(theirs[0]))

		m.failing("renew", "n1") // so is a renewal that keeps failing
		for mine[1].CheckAlive() {
			require.True(t, m.isOf("n1", "a"))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(ttl / 2)
		require.True(t, acquire(theirs[1]))
		require.True(t, mine[2].CheckAlive())

		require.NoError(t, mine[2].Release(t.Context()))
		require.True(t, acquire(theirs[2]))
	})
}

func (m *nameMap) isOf(name, id string) bool {
	r, ok := m.stands(name)
	return ok && r.Owner.ID == id
}
