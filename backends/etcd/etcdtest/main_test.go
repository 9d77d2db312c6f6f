//go:build unix

package etcdtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen; silence, how long it
// listens for what must not.
const (
	patience = 30 * time.Second
	silence  = 100 * time.Millisecond
)

// put writes a key and fails the test if that fails.
func put(t *testing.T, c *Cluster, key, value string) {
	t.Helper()
	_, err := c.Client(t).Put(t.Context(), key, value)
	require.NoError(t, err)
}

// must returns what a call returned, which may not have failed.
func must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		require.NoError(tb, err)
		return v
	}
}
