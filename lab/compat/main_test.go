//go:build linux

package compat

import (
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/lab/compat/peer"
)

func TestMain(m *testing.M) {
	if os.Getenv(peer.Env) != "" {
		peer.Main()
	}
	os.Exit(m.Run())
}
