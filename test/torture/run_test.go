//go:build linux && !race

package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/test/torture/torture"
)

// The short form, with processes and etcd. Each node is a process of this test binary;
// protoactor's remote sets gRPC's logger when it starts, while clients read it: hence
// the build constraint.
func TestShortForm(t *testing.T) {
	tier.NightlyOnly(t, "test/demo/scheduler kills and stops processes on a real etcd")
	etcdtest.Skip(t)
	var out bytes.Buffer
	violations, err := torture.Short(t.Context(), overEtcd, &out)
	require.NoError(t, err, "%s", &out)
	for _, v := range violations {
		require.True(t, v.Slow, "%s", &out)
	}
}

// Nodes that trust a slow clock, and write without a condition, are found out by what
// they do when they are cut off from etcd.
func TestBrokenNodesAreFoundOut(t *testing.T) {
	tier.NightlyOnly(t, "TestEveryViolationIsFound judges broken journals")
	etcdtest.Skip(t)
	var found torture.Found
	var out bytes.Buffer
	for try := 0; try < 3 && (found.Overlaps == 0 || found.Late == 0 || found.Stale == 0); try++ {
		out.Reset()
		var err error
		found, err = torture.Planted(t.Context(), overEtcd, &out)
		require.NoError(t, err, "%s", &out)
	}
	require.NotZero(t, found.Overlaps, "%s", &out)
	require.NotZero(t, found.Late, "%s", &out)
	require.NotZero(t, found.Stale, "%s", &out)
}
