//go:build linux && !race

package torture

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/internal/tier"
)

// skip skips a test whose servers are not there.
func skip(t *testing.T, s Store) {
	switch s.Name {
	case overEtcd.Name:
		etcdtest.Skip(t)
	case overPostgres.Name:
		postgrestest.Skip(t)
	}
}

// The short form, with processes of this test binary. That something took long is the machine's.
// protoactor's remote sets gRPC's logger when it starts, while clients read it: hence the build
// constraint.
func TestShortForms(t *testing.T) {
	tier.NightlyOnly(t, "lab/demo/scheduler kills and stops processes on a real etcd")
	for _, s := range []Store{overEtcd, overPostgres, overSQLite} {
		t.Run(s.Name, func(t *testing.T) {
			skip(t, s)
			var out bytes.Buffer
			violations, err := Short(t.Context(), s, &out)
			require.NoError(t, err, "%s", &out)
			for _, v := range violations {
				require.True(t, v.Slow, "%s", &out)
			}
		})
	}
}

// Nodes that trust a slow clock, and write without a guard, are found out by what they do when
// they are cut off from the servers.
func TestBrokenNodesAreFoundOut(t *testing.T) {
	tier.NightlyOnly(t, "TestEveryViolationIsFound judges broken journals")
	for _, s := range []Store{overEtcd, overPostgres} {
		t.Run(s.Name, func(t *testing.T) {
			skip(t, s)
			var found Found
			var out bytes.Buffer
			for try := 0; try < 3 && (found.Overlaps == 0 || found.Late == 0 || found.Stale == 0); try++ {
				out.Reset()
				var err error
				found, err = Planted(t.Context(), s, &out)
				require.NoError(t, err, "%s", &out)
			}
			require.NotZero(t, found.Overlaps, "%s", &out)
			require.NotZero(t, found.Late, "%s", &out)
			require.NotZero(t, found.Stale, "%s", &out)
		})
	}
}
