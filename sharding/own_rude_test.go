package sharding_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
	"github.com/holdfast-go/holdfast/sharding"
)

// rudeLease is a lease that panics some times when it is asked whether it is alive.
type rudeLease struct {
	lease.Lease
	bad *atomic.Int32
}

func (r rudeLease) CheckAlive() bool {
	if r.bad.Add(-1) >= 0 {
		panic("a lease of the user's")
	}
	return r.Lease.CheckAlive()
}

func (r rudeLease) Unwrap() lease.Lease { return r.Lease }

// A lease of the user's panics while its coordinator waits to prepare again, as the store of
// the shards is away: the process goes on, and so does the coordinator later.
func TestACoordinatorsLeaseThatPanicsEndsNoProcess(t *testing.T) {
	bubble(t, func(c *cluster) {
		a := c.node("a")
		elsewhere := faultstore.Wrap(memory.New())
		l, err := a.keeperOf(elsewhere).Lease(ofOwn)
		require.NoError(t, err)
		var bad atomic.Int32
		a.start(12, sharding.WithCoordinatorLease(rudeLease{l, &bad}))
		c.settled(15*time.Second, a)
		elsewhere.Partition()
		time.Sleep(2 * ttl)
		a.store.Partition()
		elsewhere.Heal()
		for i := 0; !l.CheckAlive(); i++ { // it coordinates anew, and can't prepare
			require.Less(t, i, 600)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(ttl)
		bad.Store(3)
		time.Sleep(3 * ttl)
		require.Negative(t, bad.Load(), "it has panicked")
		a.store.Heal()
		time.Sleep(2 * ttl)
		c.settled(time.Minute, a)
	})
}

// deafLease is a lease with the contract's four methods that can never be asked whether it is
// alive.
type deafLease struct {
	mute
	bad      *atomic.Bool
	acquired *atomic.Int32
}

func (d deafLease) CheckAlive() bool {
	if d.bad.Load() {
		panic("a lease of the user's")
	}
	return d.mute.CheckAlive()
}

func (d deafLease) Acquire(ctx context.Context) (bool, error) {
	d.acquired.Add(1)
	return d.mute.Acquire(ctx)
}

// A node whose coordinator's lease panics whenever it is asked does not coordinate, does not
// spin, and leaves that lease to another node for longer and longer; the shards go on.
func TestACoordinatorsLeaseThatAlwaysPanics(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		bad := make([]atomic.Bool, 2)
		acquired := make([]atomic.Int32, 2)
		for i, n := range ns {
			l, err := n.keeper.Lease(ofOwn)
			require.NoError(t, err)
			n.start(12, sharding.WithCoordinatorLease(deafLease{mute{l}, &bad[i], &acquired[i]}))
		}
		c.settled(15*time.Second, ns...)
		f := c.traffic(time.Second, ns...)
		i := slices.IndexFunc(ns, func(n *node) bool { return n.id == c.boss().Owner.ID })
		bad[i].Store(true)
		time.Sleep(5 * time.Minute)
		require.Less(t, acquired[i].Load(), int32(120))
		require.Greater(t, acquired[i].Load(), int32(20), "it is tried again")
		f.end()
		c.whole(ns...)
		bad[i].Store(false)
		time.Sleep(30 * time.Second)
		first := ns[1-i].region.Info().Coordinator
		require.NotEmpty(t, first.ID)
		d := c.node("d")
		l, err := d.keeper.Lease(ofOwn)
		require.NoError(t, err)
		d.start(12, sharding.WithCoordinatorLease(mute{l}))
		c.settled(time.Minute, append(ns, d)...)
	})
}
