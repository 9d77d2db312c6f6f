//go:build linux && !race

package torture

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/tier"
)

// protoactor's remote sets gRPC's logger when it starts, while clients read it: hence the build
// constraint.

// A store of a test's own, with two troubles, without a watch and without history of records.
func TestAnyStoreIsTortured(t *testing.T) {
	tier.NightlyOnly(t, "lab/demo/scheduler kills and stops processes on a real etcd")
	var out bytes.Buffer
	violations, err := Short(t.Context(), shared, &out)
	require.NoError(t, err, "%s", &out)
	for _, v := range violations {
		require.True(t, v.Slow, "%s", &out)
	}
	require.Contains(t, out.String(), "one store in memory")
}
