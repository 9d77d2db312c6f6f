//go:build linux && !race

package scheduler

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
)

// The whole program, on real time and real connections. Several remotes in one
// process are not clean under the race detector: protoactor sets gRPC's logger
// anew with each, and its shutdown writes what others read. Hence the build
// constraint; everything else here is tested with it.
func TestTheProgramsOwnVerdictIsGood(t *testing.T) {
	t.Parallel() // it waits, mostly
	var out bytes.Buffer
	v, err := run(stage.Config{TTL: time.Second, Duration: 4 * time.Second, Verbose: true}, &out)
	require.NoError(t, err, "%s", &out)
	require.True(t, v.Good(), "%s", &out)
	require.Len(t, v.Findings, 11)
	last := -1
	for _, line := range []string{"HOSTS", "KILLED", "no answer to job", "HOSTS", "LEAVES", "HOSTS", "THAWED", "is refused", "verdict: GOOD"} {
		at := strings.Index(out.String()[last+1:], line)
		require.GreaterOrEqual(t, at, 0, "%q in its place:\n%s", line, &out)
		last += 1 + at
	}
}
