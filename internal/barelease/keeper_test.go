package barelease_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/leasetest"
	"github.com/holdfast-go/holdfast/store/faultclock"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// ofKeepers makes the handles of Keepers, which have all that a lease may offer.
func ofKeepers(tb leasetest.TB) leasetest.Bare {
	type node struct {
		store *faultstore.Store
		clock *faultclock.Clock
	}
	shared, nodes := memory.New(), map[lease.Lease]node{}
	freeze := func(l lease.Lease) { nodes[l].clock.Freeze() }
	return leasetest.Bare{
		TTL: ttl,
		Lease: func() lease.Lease {
			n := node{faultstore.Wrap(shared), faultclock.New()}
			k, err := lease.NewKeeper(n.store, lease.Config{ID: "n", TTL: ttl, Clock: n.clock})
			if err != nil {
				tb.Fatalf("%v", err)
			}
			tb.Cleanup(func() {
				n.clock.Thaw()
				n.store.Heal()
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_ = k.Close(ctx)
				n.store.Wait()
			})
			h, err := k.Lease("job")
			if err != nil {
				tb.Fatalf("%v", err)
			}
			nodes[h] = n
			return h
		},
		Cut: func(l lease.Lease, on bool) {
			if on {
				nodes[l].store.Partition()
			} else {
				nodes[l].store.Heal()
			}
		},
		Crash: func(l lease.Lease) {
			freeze(l)
			nodes[l].store.Partition()
		},
		Pause: func(l lease.Lease, d time.Duration, waking func()) {
			freeze(l)
			time.Sleep(d)
			waking()
			nodes[l].clock.Thaw()
		},
	}
}

// A Keeper's handle is a lease as well: nothing of the kit is left out for it.
func TestAKeepersHandleKeepsTheContract(t *testing.T) {
	leasetest.RunLease(t, ofKeepers, leasetest.FakeTime())
}
