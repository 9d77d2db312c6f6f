//go:build linux

package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/test/torture/torture"
)

// short runs the short form, with processes of this test binary. That something took long is the
// machine's.
func short(t *testing.T, store torture.Store) {
	var out bytes.Buffer
	violations, err := torture.Short(t.Context(), store, &out)
	require.NoError(t, err, "%s", &out)
	for _, v := range violations {
		require.True(t, v.Slow, "%s", &out)
	}
	t.Log(out.String())
}

func TestShortFormOnPostgres(t *testing.T) {
	tier.NightlyOnly(t, "backends/postgres/test/faults, and TestTorture of backends/sqlite")
	postgrestest.Skip(t)
	short(t, overPostgres)
}

func TestShortFormOnSQLite(t *testing.T) {
	tier.NightlyOnly(t, "backends/postgres/test/faults, and TestTorture of backends/sqlite")
	short(t, overSQLite)
}

// Nodes that trust a slow clock, and write without Guard, are found out by what they do when they
// are cut off from PostgreSQL.
func TestBrokenNodesAreFoundOut(t *testing.T) {
	tier.NightlyOnly(t, "TestEveryViolationIsFound judges broken journals")
	postgrestest.Skip(t)
	var found torture.Found
	var out bytes.Buffer
	for try := 0; try < 3 && (found.Overlaps == 0 || found.Late == 0 || found.Stale == 0); try++ {
		out.Reset()
		var err error
		found, err = torture.Planted(t.Context(), overPostgres, &out)
		require.NoError(t, err, "%s", &out)
	}
	require.NotZero(t, found.Overlaps, "%s", &out)
	require.NotZero(t, found.Late, "%s", &out)
	require.NotZero(t, found.Stale, "%s", &out)
}
