package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// Close waits for the releases of handles that were closed before, and names those
// that it does not wait for any longer.
func TestCloseWaitsForHandlesThatWereClosed(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		slow := func(n *node) {
			n.rule(faultstore.Release, faultstore.Fault{Kind: faultstore.Delay, Delay: time.Second})
		}
		a := start(t, store, "a")
		job := a.hold("job")
		slow(a)
		require.ErrorIs(t, job.Close(within(t, time.Millisecond)), lease.ErrUnknown)
		began := time.Now()
		require.NoError(t, a.Close(t.Context()))
		require.Less(t, time.Since(began), 2*time.Second)
		requireFree(t, store, "job")

		b := start(t, store, "b")
		job = b.hold("job")
		slow(b)
		require.ErrorIs(t, job.Close(within(t, time.Millisecond)), lease.ErrUnknown)
		err := b.Close(within(t, time.Millisecond))
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorContains(t, err, "1 leases not released, left to expire: job")
	})
}
