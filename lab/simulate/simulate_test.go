package simulate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/tier"
)

// What is needed to fail is found among much that is not.
func TestReduce(t *testing.T) {
	for _, needed := range [][]int{{}, {1}, {45}, {1, 45}, {7, 8, 9}, {2, 13, 14, 40}} {
		all := make([]int, 45)
		for i := range all {
			all[i] = i + 1
		}
		tries := 0
		left := reduce(all, func(kept []int) bool {
			tries++
			for _, n := range needed {
				if !slices.Contains(kept, n) {
					return false
				}
			}
			return true
		})
		require.ElementsMatch(t, needed, left)
		require.Less(t, tries, 200)
	}
	require.Equal(t, []int{1, 3, 5}, others(5, []int{2, 4}))
}

func TestReplaysAreRead(t *testing.T) {
	for _, s := range []string{"lease:TestSimulation:7", "internal/route:TestFaultsLoseOnlyMailUnderWay:123:1-3,9"} {
		h, err := parse(s)
		require.NoError(t, err)
		require.Equal(t, s, h.String())
	}
	for _, s := range []string{"", "lease", "lease:TestSimulation", "lease:TestSimulation:x", "lease:TestSimulation:0", "lease:TestNothing:1",
		"nothing:TestSimulation:1", "lease:TestSimulation:1:2:3"} {
		_, err := parse(s)
		require.Error(t, err, s)
	}
	require.Error(t, Options{n: 0, times: 1}.Play(t.Context()))
	require.Error(t, Options{n: 1, times: 1, only: "nothing"}.Play(t.Context()))
}

func TestFailuresAreToldApart(t *testing.T) {
	for output, want := range map[string]string{
		"    judge.go:71: seed 4187643407 at 01:59.601: n0 began with \"child 0, 0 jobs\"\n":                 "n# began with \"child #, # jobs\"",
		"    sim_test.go:9:    0.000s seed 7: ttl 1s\n   4.2s FAILED: job/1: both n1 with 5 and n2 with 7\n": "job/#: both n# with # and n# with #",
		"panic: deadlock\n": "deadlock",
		"nothing":           "?",
	} {
		require.Equal(t, want, signature(output), output)
	}
}

// Kinds are shared out wholly, and a share of none is forgotten.
func TestShares(t *testing.T) {
	sum := 0.0
	for _, k := range kinds {
		require.Positive(t, k.share, k)
		sum += k.share
	}
	require.InDelta(t, 1, sum, 0.001)
	require.Equal(t, []string{"lease", "internal/transport", "internal/route", "membership", "partition", "singleton", "sharding"}, packages())
}

// A planted bug is found, made smaller, and found again by what was printed.
func TestAPlantedBugIsFoundAndMadeSmaller(t *testing.T) {
	tier.NightlyOnly(t, "TestReduce makes histories smaller")
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	o := Options{root: root, n: 1, times: 200, smaller: time.Minute, first: 1000}
	o.overlay = overlay(t, filepath.Join(root, "backends/memory/store.go"), "r.token = s.counter", "if r.token = s.counter; old == nil {\n\t\tr.token = 1\n\t}")
	p := newPlayer(o)
	defer p.close()
	lease := kinds[0]
	failing, _ := p.play(t.Context(), lease, 20)
	require.NotEmpty(t, failing)
	h := failing[0]
	p.smaller(t.Context(), &h)
	require.NotEmpty(t, h.without, "nothing could be left out")
	again, err := parse(h.String())
	require.NoError(t, err)
	require.ErrorContains(t, p.again(t.Context(), again), "it failed: ")

	o.overlay = ""
	clean := newPlayer(o)
	defer clean.close()
	failing, _ = clean.play(t.Context(), lease, 20)
	require.Empty(t, failing, "with nothing planted")
	require.NoError(t, clean.again(t.Context(), again))
}

// overlay returns the path of an overlay in which old, in one file, is replaced.
func overlay(t *testing.T, file, old, instead string) string {
	source, err := filepath.Abs(file)
	require.NoError(t, err)
	text, err := os.ReadFile(source)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), old), "%s: occurrences of %q", file, old)
	edited := filepath.Join(t.TempDir(), "edited.go")
	require.NoError(t, os.WriteFile(edited, []byte(strings.Replace(string(text), old, instead, 1)), 0o600))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {source: edited}})
	require.NoError(t, err)
	written := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(written, replace, 0o600))
	return written
}
