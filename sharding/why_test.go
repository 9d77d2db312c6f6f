package sharding_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

// Who asks in vain is told what stood in the way.
func TestAskSaysWhyThereWasNoAnswer(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		ns[0].start(2)
		asked := func(within time.Duration) error {
			_, err := sharding.Ask[done](contextFor(within), ns[1].region, idOf(0, 2), job{"s", 1})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return err
		}
		ns[1].start(2, sharding.WithProxyOnly())
		c.settled(5*time.Second, ns[0])
		_, err := ask(ns[1], idOf(0, 2), 1)
		require.NoError(t, err)

		c.net.Freeze("a:1")
		after(time.Second, ns[0].crash)
		_, err = ask(ns[1], idOf(0, 2), 2)
		require.ErrorIs(t, err, hosting.ErrUnconfirmed)
		require.ErrorContains(t, err, "the link to the host at a:1 broke 0s ago")
		time.Sleep(time.Second)
		require.NotContains(t, asked(time.Second).Error(), "broke", "before it was asked")

		time.Sleep(2 * ttl)
		require.ErrorContains(t, asked(time.Second), "no node has been known to host shard 0 for ")
		require.NoError(t, ns[1].region.Tell(idOf(0, 2), job{"s", 2}))
		require.Regexp(t, "[12] messages wait here for the shard", asked(time.Second).Error())

		ns[1].store.Partition()
		time.Sleep(ttl)
		require.ErrorContains(t, asked(time.Second), "the store has not been reached since ")
	})
}

// closable is a store of remembered entities that fails while err is set.
type closable struct {
	sharding.EntityStore
	err atomic.Pointer[error]
}

func (b *closable) Update(ctx context.Context, o lease.Ownership, add, remove []string) error {
	if err := b.err.Load(); err != nil {
		return *err
	}
	return b.EntityStore.Update(ctx, o, add, remove)
}

// An entity that can't be remembered does not start.
func TestAskSaysThatTheEntityIsNotRemembered(t *testing.T) {
	bubble(t, func(c *cluster) {
		store := &closable{EntityStore: sharding.NewMemoryEntities()}
		n := c.hosting("a", 1, sharding.WithRemember(store, 0))[0]
		err := errors.New("the store is closed")
		store.err.Store(&err)
		_, err = ask(n, "x", 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "(the store of remembered entities: the store is closed, 1 messages wait here for the shard)")
		store.err.Store(nil)
		time.Sleep(5 * time.Second)
		_, err = ask(n, "x", 2)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err = sharding.Ask[done](ctx, n.region, "x", job{"s", 3})
		require.NotContains(t, err.Error(), "remembered", "it is over")
	})
}
