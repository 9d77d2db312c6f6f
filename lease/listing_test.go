package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
)

// With a watch that runs, and nothing in doubt, every third TTL lists: a listing reads all
// there is. The clock of this test is below zero.
func TestEveryThirdRoundLists(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		a.hold("job")
		time.Sleep(10 * ttl)
		before := store.Stats().List
		time.Sleep(30 * ttl)
		require.InDelta(t, 10, store.Stats().List-before, 1)
	})
}
