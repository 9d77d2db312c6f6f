//go:build linux && !race

package main

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Nodes that leak with every entity they start, for real.
func TestLeaksOfNodesAreFoundOut(t *testing.T) {
	if os.Getenv("HOLDFAST_SKIP_ETCD") == "1" {
		fmt.Fprintf(os.Stderr, "etcd skipped (HOLDFAST_SKIP_ETCD is set): %s\n", t.Name())
		t.Skip("etcd skipped (HOLDFAST_SKIP_ETCD is set)")
	}
	t.Setenv(shardEnv, "") // it is as it was in the end
	t.Setenv(leakEnv, "goroutines, heap")
	var out bytes.Buffer
	require.NoError(t, loadCheck(t.Context(), []string{"-for", "12s"}, &report{out: &out}), "%s", &out)
	require.Contains(t, out.String(), "BROKEN processes that end with more goroutines")
	require.Contains(t, out.String(), "BROKEN processes that end with more heap")
	require.Contains(t, out.String(), "ok     processes that end with more open files")
}

func TestBadFlagsOfLoad(t *testing.T) {
	for _, args := range [][]string{{"-for", "9s"}, {"-rate", "99"}, {"-rate", "20001"}, {"-for", "10h"}} {
		require.ErrorContains(t, loadCheck(t.Context(), args, &report{out: &bytes.Buffer{}}), "-for must be at least 10s")
	}
}
