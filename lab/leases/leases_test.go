//go:build linux

package leases

import (
	"errors"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// The test binary is its own processes.
func TestMain(m *testing.M) {
	Child()
	goleak.VerifyTestMain(m)
}

func play(t *testing.T, s scene.Scenario, store string) {
	t.Helper()
	t.Parallel() // they wait, mostly
	err := s.Play(t.Context(), &scene.Run{Short: true, Store: store, Out: t.Output()})
	if errors.Is(err, postgrestest.ErrMissing) && os.Getenv("HOLDFAST_CI") != "1" { // PgBouncer, faketime, the right to mount
		t.Skip(err)
	}
	require.NoError(t, err)
}

// commit are the scenarios that the commit tier plays, in their short form.
var commit = []string{"serverless"}

// TestShortForms plays scenarios in their short form. bloat and compare take more than ten seconds on
// PostgreSQL.
func TestShortForms(t *testing.T) {
	etcdtest.Skip(t)
	postgrestest.Skip(t)
	for _, s := range Scenarios() {
		// Those of goroutines that protoactor leaves behind, and of faults, are elsewhere.
		if s.Name == "grains" || isFault(s.Name) || !tier.Nightly() && !slices.Contains(commit, s.Name) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) { play(t, s, "") })
		if tier.Nightly() && slices.Contains([]string{"names", "outage", "compare"}, s.Name) {
			t.Run(s.Name+" on PostgreSQL", func(t *testing.T) { play(t, s, onPostgres) })
		}
	}
}

func isFault(name string) bool {
	return slices.ContainsFunc(faults(), func(f fault) bool { return f.name == name })
}

// commitFaults are played in the commit tier, the others in the nightly tier only.
var commitFaults = []string{"pg-all-killed", "pg-sync-promoted"}

// TestFaults: whatever happens to the server, no two believe in a name at once and tokens grow,
// unless its clock was stepped; no holder believes beyond its deadline; and soon after, every name is
// held again, by the nodes that were there before.
func TestFaults(t *testing.T) {
	postgrestest.Skip(t)
	for _, f := range faults() {
		if !tier.Nightly() && !slices.Contains(commitFaults, f.name) {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			play(t, f.scenario(), "")
		})
	}
}

// TestATransactionThatHoldsUpIsFound: one that does keep calls waiting.
func TestATransactionThatHoldsUpIsFound(t *testing.T) {
	tier.NightlyOnly(t, "TestShortForms plays scenarios")
	postgrestest.Skip(t)
	run := &scene.Run{Short: true, Out: t.Output()}
	err := scene.Try(func() {
		beside(t.Context(), run, 3*time.Second, 100*time.Millisecond, 2*time.Second, "LOCK TABLE holdfast.session")
	})
	require.ErrorContains(t, err, "beside an idle transaction")
}

func TestRenewalsPerRound(t *testing.T) {
	require.InDelta(t, 100.0, perRound(900, 30*time.Second, 10*time.Second/3), 1e-6)
	require.True(t, math.IsInf(perRound(1, 0, time.Second), 1), "an empty window keeps no bound")
}
