//go:build unix

package etcdtest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// holdEnv makes the test binary run a cluster, print its processes and wait to be
// killed: what a test process does that never comes to its cleanups.
const holdEnv = "ETCDTEST_HOLD"

func TestMain(m *testing.M) {
	if os.Getenv(holdEnv) != "" {
		c, err := Run(context.Background(), Options{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(c.members[0].Pid(), c.group.Temp)
		select {}
	}
	goleak.VerifyTestMain(m)
}

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
