package simulate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStepsAreWritten(t *testing.T) {
	for text, want := range map[string][]int{"": nil, "3": {3}, "7-9,3": {3, 7, 8, 9}, "1,2,2,3,5": {1, 2, 3, 5}} {
		var s steps
		require.NoError(t, s.Set(text))
		require.Equal(t, steps(want), s)
		var again steps
		require.NoError(t, again.Set(s.String()))
		require.Equal(t, s, again)
	}
	require.Equal(t, "1-3,5,9-10", Format([]int{10, 2, 1, 3, 9, 5, 5}))
	for _, text := range []string{"x", "1-", "-1", "0", "3-2", "1,,2", "1-9999999999", "1.5"} {
		var s steps
		require.Error(t, s.Set(text), text)
	}
}

var suite = New("simulate-test", 3, 2)

// What a step draws does not depend on how much the steps before drew, nor on
// whether they were left out.
func TestStepsAreIndependent(t *testing.T) {
	*suite.seed = 42
	defer func() { *suite.seed = 0; suite.without = nil }()
	play := func(greed int) (drawn map[int]uint64) {
		r := suite.Random(42)
		drawn = map[int]uint64{}
		for range r.Each(10) {
			drawn[r.Steps()] = r.Uint64()
			for range greed * r.Steps() {
				r.Uint64()
			}
		}
		return drawn
	}
	whole := play(1)
	require.Len(t, whole, 10)
	require.Equal(t, whole, play(7))
	seen := map[uint64]bool{}
	for _, x := range whole {
		require.False(t, seen[x])
		seen[x] = true
	}
	require.NoError(t, suite.without.Set("2-4,9"))
	for _, n := range []int{2, 3, 4, 9} {
		delete(whole, n)
	}
	require.Equal(t, whole, play(3))
	*suite.seed = 0
	require.Len(t, play(1), 10, "left out of replays only")
}

func TestSeedsAreCounted(t *testing.T) {
	*suite.first, *suite.count = 7, 5
	defer func() { *suite.first, *suite.count = 0, 0 }()
	got := make(chan uint64, 10)
	t.Run("histories", func(t *testing.T) { suite.Run(t, func(_ *testing.T, seed uint64) { got <- seed }) })
	close(got)
	seen := map[uint64]bool{}
	for seed := range got {
		require.False(t, seen[seed])
		seen[seed] = true
	}
	require.Equal(t, map[uint64]bool{7: true, 8: true, 9: true, 10: true, 11: true}, seen)
}
