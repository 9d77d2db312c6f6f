package remoting_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is its own cluster: with HOLDFAST_NODE set it runs one node
// instead of the tests, since one process can hold one remote only (a second
// Start writes gRPC's logger while the first uses it).
func TestMain(m *testing.M) {
	if os.Getenv("HOLDFAST_NODE") != "" {
		os.Exit(runNode())
	}
	goleak.VerifyTestMain(m)
}
