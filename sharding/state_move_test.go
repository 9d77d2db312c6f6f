package sharding_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

// A planned move over links that are slow starts warm.
func TestPlannedMovesOverSlowLinksStartWarm(t *testing.T) {
	delays := tier.Draws(28, 28)
	for i := range delays {
		d := 50*time.Millisecond + time.Duration(i)*250*time.Millisecond/time.Duration(delays-1)
		t.Run(d.String(), func(t *testing.T) {
			bubble(t, func(c *cluster) {
				k := &keepers{t: t}
				ns := c.nodes("a", "b")
				for _, n := range ns {
					k.start(n, 4)
				}
				c.settled(5*time.Second, ns...)
				require.Equal(t, 0, k.ask(ns[1], 40, 0))
				c.net.SetDelay("a:1", "b:1", d)
				c.net.SetDelay("b:1", "a:1", d)
				require.NoError(t, ns[0].region.Drain(context.Background()))
				require.Zero(t, k.ask(ns[1], 40, 1))
				k.require(0)
			})
		})
	}
}

// States that take longer than the old host's record come in time.
func TestStatesAreWaitedFor(t *testing.T) {
	bubble(t, func(c *cluster) {
		k := &keepers{t: t}
		ns := c.nodes("a", "b")
		for _, n := range ns {
			k.start(n, 4)
		}
		c.settled(5*time.Second, ns...)
		require.Zero(t, k.ask(ns[1], 40, 0))
		c.net.SetDelay("a:1", "b:1", 400*time.Millisecond)
		require.NoError(t, ns[0].region.Drain(context.Background()))
		time.Sleep(5 * time.Second)
		c.net.SetDelay("a:1", "b:1", 0)
		require.Zero(t, k.ask(ns[1], 40, 1))
		k.require(0)
	})
}

// lateStore's Load takes its time.
type lateStore struct {
	sharding.EntityStore
	wait *atomic.Bool
}

func (s lateStore) Load(ctx context.Context, o lease.Ownership) ([]string, error) {
	for s.wait.Load() {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return s.EntityStore.Load(ctx, o)
}

// A state that was handed over and whose entity has not started yet moves on with the
// shard, or is told where nobody takes that over.
func TestUnclaimedStatesMoveOn(t *testing.T) {
	for name, x := range map[string]struct {
		wait  time.Duration
		moves bool
	}{"to the next host": {2 * time.Second, true}, "perhaps to nobody, as the other node is about to host again": {0, false}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(c *cluster) {
				k := &keepers{t: t}
				var slow atomic.Bool
				store := sharding.NewMemoryEntities()
				ns := c.nodes("a", "b")
				for _, n := range ns {
					k.start(n, 4, sharding.WithRemember(lateStore{store, &slow}, 0))
				}
				c.settled(5*time.Second, ns...)
				require.Zero(t, k.ask(ns[1], 40, 0))
				slow.Store(true)
				require.NoError(t, ns[0].region.Drain(context.Background()))
				ns[0].region.Undrain()
				time.Sleep(x.wait)
				require.NoError(t, ns[1].region.Drain(context.Background()))
				slow.Store(false)
				time.Sleep(5 * time.Second)
				lost := k.ask(ns[0], 40, 1)
				if x.moves {
					require.Zero(t, lost)
				}
				k.require(lost)
				ns[1].region.Undrain()
			})
		})
	}
}

// A planned move waits for no store of what is remembered, which a coordinator asks when it
// begins: the shards that live move, warm.
func TestMovesDoNotWaitForTheStoreOfEntities(t *testing.T) {
	bubble(t, func(c *cluster) {
		k := &keepers{t: t}
		var slow atomic.Bool
		store := sharding.NewMemoryEntities()
		ns := c.nodes("a", "b", "c")
		for _, n := range ns {
			k.start(n, 12, sharding.WithRemember(lateStore{store, &slow}, 0))
		}
		c.settled(5*time.Second, ns...)
		time.Sleep(2 * time.Second)
		require.Zero(t, k.ask(ns[1], 40, 0))
		slow.Store(true)
		for len(ns) > 1 { // the next coordinator begins
			time.Sleep(time.Second)
			i := slices.IndexFunc(ns, func(n *node) bool { return n.region.Info().Coordinator.ID == n.id })
			require.GreaterOrEqual(t, i, 0)
			began := time.Now()
			require.NoError(t, ns[i].region.Stop(context.Background()))
			require.Less(t, time.Since(began), 5*time.Second)
			ns = slices.Delete(ns, i, i+1)
		}
		require.Equal(t, 12, ns[0].region.Info().Held)
		slow.Store(false)
		time.Sleep(5 * time.Second)
		require.Zero(t, k.ask(ns[0], 40, 1))
		k.require(0)
	})
}

// States that come after the new host went on without them are told, one by one.
func TestLateStatesAreReported(t *testing.T) {
	bubble(t, func(c *cluster) {
		k := &keepers{t: t}
		ns := c.nodes("a", "b")
		for _, n := range ns {
			k.start(n, 4)
		}
		c.settled(5*time.Second, ns...)
		require.Zero(t, k.ask(ns[1], 40, 0))
		k.stopping = time.Second
		go func() { _ = ns[0].region.Drain(context.Background()) }()
		time.Sleep(900 * time.Millisecond) // the offers have been made
		c.net.SetDelay("a:1", "b:1", 12*time.Second)
		time.Sleep(60 * time.Second)
		c.net.SetDelay("a:1", "b:1", 0)
		time.Sleep(100 * time.Second)
		lost := k.ask(ns[1], 40, 1)
		require.NotZero(t, lost)
		k.require(lost)
	})
}

// 10 000 states on a slow link wait on their node, within a window on the link.
func TestManyStatesGoInAWindow(t *testing.T) {
	bubble(t, func(c *cluster) {
		k := &keepers{t: t, pad: 1 << 10}
		ids := tier.Draws(10_000, 10_000)
		ns := c.nodes("a", "b")
		for _, n := range ns {
			k.start(n, 1, sharding.WithBuffer(ids, 10*ids, hosting.DropNewest))
		}
		time.Sleep(3 * time.Second)
		from, to := ns[0], ns[1]
		if from.region.Info().Held == 0 {
			from, to = to, from
		}
		for i := range ids {
			require.NoError(t, from.region.Tell(fmt.Sprint("id", i), howMany{}))
		}
		time.Sleep(time.Second)
		c.net.SetDelay(from.id+":1", to.id+":1", 300*time.Millisecond)
		var most atomic.Uint64
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
					most.Store(max(most.Load(), c.net.Stats().Queued))
				}
			}
		}()
		require.NoError(t, from.region.Drain(context.Background()))
		time.Sleep(10 * time.Second)
		close(stop)
		time.Sleep(time.Second)
		require.Less(t, most.Load(), uint64(transport.MaxBytes/(1<<10)+200), "the window")
		require.Greater(t, most.Load(), uint64(ids/10))
		require.EqualValues(t, ids, k.warm.Load())
		k.require(0)
	})
}
