//go:build linux

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/internal/tier"
)

// testTTL is long enough for a holder on a machine that is busy to lose nothing.
const testTTL = 5 * time.Second

// attempts is how often a fault is played that should have cost nobody a term, and did: a machine
// that is busy with other things may have.
const attempts = 3

// robbed reports whether a holder lost what it should have kept. Half a TTL without service ends
// nobody's trust: the last renewal was sent at most a third of a TTL before, and the margin is a
// tenth.
func (f fault) robbed(r finding) bool { return f.keeps && r.out < testTTL/2 && r.lost > 0 }

// commitFaults are played in the commit tier, the others in the nightly tier only.
var commitFaults = []string{"AllKilled", "SyncPromoted"}

// TestFaults: whatever happens to the server, no two believe in a name at once and tokens grow,
// unless its clock was stepped; nobody believes beyond the deadline; and soon after, every name is
// held again, by the nodes that were there before.
func TestFaults(t *testing.T) {
	for _, f := range faults() {
		if !tier.Nightly() && !slices.Contains(commitFaults, f.name) {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			postgrestest.Skip(t, f.needs...)
			var r finding
			for range attempts {
				var err error
				r, err = play(t.Context(), testTTL, f)
				require.NoError(t, err)
				t.Logf("%s: %s | %s | %v", f.title, r.beliefs(), r.recovery(), r.verdict)
				if !f.robbed(r) {
					break
				}
			}
			require.NoError(t, r.err)
			require.Equal(t, 2, r.held, "the long names were not held when it began")
			if f.twice {
				require.NotZero(t, r.doubles, "two stores, and no name was held in both")
				return
			}
			if r.backward > 0 {
				tier.Unsafe(t, "%d tokens went back: %v", r.backward, r.verdict)
			}
			if err := r.verdict.err(); err != nil && !f.clock {
				tier.Unsafe(t, "%v", err)
			}
			require.False(t, f.robbed(r), "lost though service was gone for %v only: %v", r.out, r.reasons)
			if f.loses {
				require.Equal(t, r.held, r.lost, "kept though no renewal can have succeeded")
				require.Less(t, r.believed, testTTL, "believed for longer than the TTL")
			}
		})
	}
}

// TestAsyncFailover: tokens grow over a fail-over that loses the last writes, as long as the
// standby's clock is not behind; and two may hold a name, which only fencing makes up for.
func TestAsyncFailover(t *testing.T) {
	tier.NightlyOnly(t, "TestFaults kills and restarts a server")
	t.Parallel()
	postgrestest.Skip(t)
	var all tallied
	for _, cut := range []bool{false, true} {
		r, err := failover(t.Context(), testTTL, gap{lag: 300 * time.Millisecond, cut: cut})
		require.NoError(t, err)
		require.Zero(t, r.backward, "%v", r.verdict)
		all.add(r)
	}
	t.Log(&all)
	require.LessOrEqual(t, all.longest, testTTL, "two believed for longer than a TTL")
}

// TestRenewalsLeaveNoBloat: renewals are updates within their page, and their dead rows are
// reused without a vacuum.
func TestRenewalsLeaveNoBloat(t *testing.T) {
	tier.NightlyOnly(t, "it is about the size of tables")
	t.Parallel()
	postgrestest.Skip(t)
	r, err := renewMany(t.Context(), 20_000, false, false)
	require.NoError(t, err)
	t.Log(r)
	require.EqualValues(t, 20_000, r.updates)
	require.GreaterOrEqual(t, r.hot, r.updates*99/100)
	require.Less(t, r.after, r.before+(256<<10))
}
