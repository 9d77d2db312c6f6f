//go:build !race

package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The whole program, on real time and real connections. Several remotes in one
// process are not clean under the race detector: protoactor sets gRPC's logger
// anew with each, and its shutdown writes what others read. Hence the build
// constraint; everything else here is tested with it.
func TestTheProgramsOwnVerdictIsGood(t *testing.T) {
	var out bytes.Buffer
	v, err := run(config{ttl: time.Second, duration: 4 * time.Second, verbose: true, patience: 3 * time.Second}, &out)
	require.NoError(t, err, "%s", &out)
	require.True(t, v.good(), "%s", v)
	require.Len(t, v, 12)
	inOrder(t, out.String(), "JOINS", "sees all 64", "LEAVES", "has left", "sees all 64", "KILLED", "sees all 64", "THAWED", "is refused", "verdict: GOOD")
}
