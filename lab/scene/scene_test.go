package scene

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPlayFailsOfViolationsAndErrors(t *testing.T) {
	dirs := map[string]string{}
	all := []Scenario{
		{Name: "good", Do: func(_ context.Context, r *Run) {
			dirs["good"] = r.Dir
			r.AtMost("what", 1, 1, "")
			r.Within("wait", time.Second, 2*time.Second)
		}},
		{Name: "slow", Do: func(_ context.Context, r *Run) { r.Within("wait", 3*time.Second, 2*time.Second) }},
		{Name: "unknown", Do: func(_ context.Context, r *Run) { r.AtMost("ratio", math.NaN(), 1, "") }},
		{Name: "broken", Do: func(_ context.Context, r *Run) { dirs["broken"] = r.Dir; Check(errors.New("no server")) }},
	}
	for _, c := range []struct {
		names  []string
		passed bool
		says   string
	}{
		{[]string{"good"}, true, "at most 1"}, {[]string{"good", "slow"}, false, "VIOLATION: wait: 3 s, at most 2 s"},
		{[]string{"unknown"}, false, "ratio: NaN"}, {[]string{"broken"}, false, "no server"}, {[]string{"all"}, false, "seed 7"},
	} {
		var out bytes.Buffer
		passed, err := Play(t.Context(), all, c.names, &Run{Seed: 7, Out: &out})
		require.NoError(t, err)
		require.Equal(t, c.passed, passed, "%v: %s", c.names, &out)
		require.Contains(t, out.String(), c.says)
	}
	require.NoDirExists(t, dirs["good"])
	require.DirExists(t, dirs["broken"], "what is left of a failure stays")
	require.NoError(t, os.RemoveAll(dirs["broken"]))
	for _, names := range [][]string{nil, {"none"}} {
		_, err := Play(t.Context(), all, names, &Run{Out: &bytes.Buffer{}})
		require.Error(t, err)
	}
}

func TestPercentile(t *testing.T) {
	three := []time.Duration{3, 1, 2}
	require.EqualValues(t, 1, Percentile(three, 0))
	require.EqualValues(t, 2, Percentile(three, 50))
	require.EqualValues(t, 3, Percentile(three, 99))
	require.EqualValues(t, math.MaxInt64, Percentile(nil, 50), "no samples keep no bound")
}
