package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// A store may find out late that it gives no hints, as when another server answers. From
// then on it is polled as one that never gave any.
func TestHintsThatAreUnsupportedFromNowOnLeavePolling(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		over := make(chan struct{})
		store := hintsByHand(s, func(ctx context.Context, yield func(lease.Hint, error) bool) {
			if !yield(lease.Hint{}, nil) {
				return
			}
			select {
			case <-over:
				yield(lease.Hint{}, lease.ErrUnsupported)
			case <-ctx.Done():
			}
		})
		rarely := func(c *lease.Config) { c.PollMax = time.Hour }
		a, b := start(t, s, "a"), start(t, store, "b", rarely)
		la := a.hold("job")
		var events told
		stop, err := b.Watch("", events.add)
		require.NoError(t, err)
		defer stop()
		heard := waits(b.lease("job"))
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"+job", "synced"}, events.take())
		close(over)
		synctest.Wait()
		require.NoError(t, la.Release(t.Context()))
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"-job"}, events.take())
		require.Len(t, heard, 1)
		require.NoError(t, <-heard)
		require.EqualValues(t, 1, store.asked.Load())
	})
}
