//go:build linux && !race

package bank

import (
	"bytes"
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
	v, err := run(config{stage.Config{TTL: time.Second, Duration: 4 * time.Second, Verbose: true}, 3 * time.Second}, &out)
	require.NoError(t, err, "%s", &out)
	require.True(t, v.Good(), "%s", &out)
	require.Len(t, v.Findings, 12)
	inOrder(t, out.String(), "JOINS", "sees all 64", "LEAVES", "has left", "sees all 64", "KILLED", "sees all 64", "THAWED", "is refused", "verdict: GOOD")
}
