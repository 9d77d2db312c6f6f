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

func TestMessagesPerRound(t *testing.T) {
	require.InDelta(t, 100.0, perRound(900, 30*time.Second, 10*time.Second/3), 1e-6)
	require.InDelta(t, 1.0, perRound(1, time.Second, time.Second), 0)
	require.True(t, math.IsInf(perRound(1, 0, time.Second), 1), "an empty window keeps no bound")
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

// What a holder said before and after it was stopped.
func TestFirstLookAfterAStop(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	looks := []look{
		{before: ms(1000), after: ms(1000), alive: true, token: 3},
		{before: ms(1001), after: ms(8000), alive: true, token: 3}, // stopped in the midst: says nothing
		{before: ms(8001), after: ms(8001)},
		{before: ms(8500), after: ms(8500), alive: true, token: 5},
	}
	l, ok := firstAfter(looks, ms(8000))
	require.True(t, ok)
	require.Equal(t, looks[2], l)
	_, ok = firstAfter(looks, ms(9000))
	require.False(t, ok)
	_, ok = firstAfter(looks[:2], ms(1001))
	require.False(t, ok)
}

func TestTokensNeverGoBack(t *testing.T) {
	at := func(s int, token uint64) sighting { return sighting{at: time.Duration(s), token: token} }
	require.Zero(t, goneBack([]sighting{at(1, 3), at(3, 7), at(2, 5), at(4, 7)}))
	require.Equal(t, 1, goneBack([]sighting{at(1, 3), at(2, 5), at(3, 4), at(4, 5)}))
	require.Zero(t, goneBack(nil))
}
