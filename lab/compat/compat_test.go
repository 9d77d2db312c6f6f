//go:build linux

package compat

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/apicheck"
	"github.com/holdfast-go/holdfast/lab/nodes"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// TestLastReleaseBesideThisVersion: a singleton and shards go from nodes of one version
// to nodes of the other and back, while nodes of both send to them. All is handled once
// and in order, state goes along, and no actor runs in two places. Without a release it
// passes.
func TestLastReleaseBesideThisVersion(t *testing.T) {
	release, err := apicheck.LastRelease(root)
	require.NoError(t, err)
	if release == "" {
		fmt.Println("compat: no release is tagged in this clone: nothing to compare with")
		return
	}
	etcdtest.Skip(t)
	require.NoError(t, nodes.Beside(former(t, root, release)).Play(t.Context(), &scene.Run{Out: t.Output()}))
}
