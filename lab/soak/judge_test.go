//go:build linux

package soak

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

func TestPercentile(t *testing.T) {
	var s []time.Duration
	for i := 100; i > 0; i-- {
		s = append(s, time.Duration(i))
	}
	for p, want := range map[float64]time.Duration{0: 1, 1: 1, 50: 50, 50.5: 51, 99: 99, 100: 100} {
		require.Equal(t, want, lab.Percentile(s, p), "p%v", p)
	}
	require.Equal(t, time.Duration(100), s[0], "the samples were sorted in place")
	require.Equal(t, time.Duration(7), lab.Percentile([]time.Duration{7}, 50))
	require.Equal(t, time.Duration(math.MaxInt64), lab.Percentile(nil, 50))
}

func TestBounds(t *testing.T) {
	var out bytes.Buffer
	r := &report{out: &out}
	r.atMost("equal", 2, 2, "")
	require.Equal(t, [2]int{1, 0}, [2]int{r.kept, r.broken})
	r.atMost("above", 2.1, 2, "")
	r.atMost("no number", math.NaN(), 2, "")
	r.within("too long", time.Second+1e6, time.Second)
	r.within("no samples", lab.Percentile(nil, 99), time.Hour)
	require.Equal(t, [2]int{1, 4}, [2]int{r.kept, r.broken})
	require.Contains(t, out.String(), "ok     equal: 2, at most 2")
	require.Contains(t, out.String(), "BROKEN above: 2.1, at most 2")
}

func TestRatio(t *testing.T) {
	require.InDelta(t, 0.5, ratio(1, 2), 0)
	require.True(t, math.IsNaN(ratio(1, 0)))
	require.True(t, math.IsNaN(ratio(lab.Percentile(nil, 50), 1)))
	require.True(t, math.IsNaN(ratio(1, lab.Percentile(nil, 50))))
}
