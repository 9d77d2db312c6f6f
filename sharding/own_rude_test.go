package sharding_test

import (
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
