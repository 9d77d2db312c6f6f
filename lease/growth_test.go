package lease_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// What was ever in doubt is not looked at for as long as the process lives.
func TestDoubtsFade(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		a.hold("kept") // and with it the session
		a.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.Drop})
		for i := range 1100 { // more than are kept by name, too
			h := a.lease(fmt.Sprint("job/", i))
			_, err := h.Acquire(within(t, time.Millisecond))
			require.ErrorIs(t, err, lease.ErrUnknown)
			_ = h.Close(within(t, time.Millisecond))
		}
		var looks, listings atomic.Int32
		a.store.SetRule(func(c faultstore.Call) faultstore.Fault {
			switch c.Op {
			case faultstore.Get:
				looks.Add(int32(len(c.Names)))
			case faultstore.List, faultstore.ListSession:
				listings.Add(1)
			}
			return faultstore.Fault{}
		})
		time.Sleep(10 * ttl)
		require.Positive(t, looks.Load()+listings.Load(), "a late request would be found")
		time.Sleep(60 * ttl)
		looks.Store(0)
		listings.Store(0)
		time.Sleep(60 * ttl)
		require.Zero(t, looks.Load(), "names that are looked at")
		require.LessOrEqual(t, listings.Load(), int32(45), "listings in 60 TTLs")
	})
}

// A name that nothing was ever sent for, since no session could be opened, is in no
// doubt: it is neither kept nor looked at, and given up without a request.
func TestWhatWasNeverSentIsInNoDoubt(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		a.rule(faultstore.OpenSession, faultstore.Fault{Kind: faultstore.Drop})
		var looks atomic.Int32
		for i := range 100 {
			h := a.lease(fmt.Sprint("job/", i))
			_, err := h.Acquire(t.Context())
			require.ErrorIs(t, err, lease.ErrUnknown)
			began := time.Now()
			require.NoError(t, h.Close(t.Context()))
			require.Zero(t, time.Since(began))
		}
		a.store.SetRule(func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.Get {
				looks.Add(int32(len(c.Names)))
			}
			return faultstore.Fault{}
		})
		time.Sleep(10 * ttl)
		require.Zero(t, looks.Load(), "names that are looked at")
	})
}

// A Keeper keeps nothing of a TTL that no lease has any more.
func TestTTLsThatNobodyHasAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		var size []int64
		for round := range 3 {
			for i := range 3000 {
				h := a.lease("job", lease.WithTTL(ttl+time.Duration(round*3000+i)*time.Millisecond))
				if i%100 == 0 {
					mustWin(t, h)
				}
				require.NoError(t, h.Close(t.Context()))
			}
			time.Sleep(10 * ttl) // sessions are closed when they were empty for a TTL
			size = append(size, heap())
		}
		require.Less(t, size[2], size[1]+200_000, "bytes after 3000, 6000 and 9000 TTLs: %d", size)
	})
}
