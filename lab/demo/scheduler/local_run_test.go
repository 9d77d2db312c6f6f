//go:build linux && !race

package scheduler

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lab/demo/stage"
)

// The whole program with processes and etcd: the one test here that needs them.
// protoactor's remote sets gRPC's logger when it starts, while the client of etcd
// reads it: hence the build constraint.
func TestWithProcessesAndEtcdTheVerdictIsGood(t *testing.T) {
	t.Parallel() // it waits, mostly
	etcdtest.Skip(t)
	var out bytes.Buffer
	v, err := runLocal(t.Context(), stage.Config{TTL: 2 * time.Second, Duration: 10 * time.Second}, &out)
	require.NoError(t, err, "%s", &out)
	for _, f := range v.Failed() {
		if slices.Contains([]string{tokensGrow, overlaps, fenced, deadOnThaw, lostJobs, doneTwice, ticksInOrder}, f) {
			tier.Unsafe(t, "%s\n%s", f, &out)
		}
	}
	require.True(t, v.Good(), "%s", &out)
	require.Len(t, v.Findings, 11)
	last := -1
	for _, line := range []string{"HOSTS", "KILLED", "HOSTS", "STOPPED", "HOSTS", "SIGCONT", "found the lease lost", "has left", "verdict: GOOD"} {
		at := strings.Index(out.String()[last+1:], line)
		require.GreaterOrEqual(t, at, 0, "%q in its place:\n%s", line, &out)
		last += 1 + at
	}
}
