//go:build linux

package compat

import (
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/lab/nodes"
)

// The test binary is its own nodes.
func TestMain(m *testing.M) {
	nodes.Child()
	os.Exit(m.Run())
}
