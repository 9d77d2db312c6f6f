package simulate

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/memnet"
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

func TestNewsComesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n News
		var mu sync.Mutex // each is heard on a goroutine of its own
		var heard []time.Duration
		began := time.Now()
		for _, d := range []time.Duration{2 * time.Second, time.Second, 3 * time.Second} {
			n.After(d, func() {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, time.Since(began))
			})
		}
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []time.Duration{2 * time.Second, 2*time.Second + 1, 3 * time.Second}, heard)
	})
}

func TestAJamIsFixedByItsSeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addrs := []string{"a", "b", "c", "d"}
		s := &Suite{seed: new(uint64)}
		jam := func(seed uint64) map[string]string { return Jam(s.Random(seed), memnet.New(), addrs) }
		require.Equal(t, jam(1), jam(1))
		require.NotEqual(t, jam(1), jam(2))
		congested := 0
		for seed := range uint64(100) {
			congested += len(jam(seed))
		}
		require.InDelta(t, 800, congested, 100)
	})
}

func TestSpread(t *testing.T) {
	require.Equal(t, time.Millisecond, Spread(0, time.Millisecond, time.Second))
	require.InDelta(t, float64(100*time.Millisecond), float64(Spread(0.5, 10*time.Millisecond, time.Second)), float64(time.Microsecond))
	require.Less(t, Spread(0.999, time.Millisecond, time.Second), time.Second)
}

func TestATallyCountsHops(t *testing.T) {
	var tally Tally
	for range 3 {
		tally.Sent(1)
	}
	tally.Sent(2)
	tally.Done(1)
	tally.Moved(1) // two go after it
	tally.Moved(3)
	require.Equal(t, 6, tally.Hops)
	require.Equal(t, 4, tally.Peak)
	require.Equal(t, 3, tally.Pending())
}

func TestATallyTellsWaste(t *testing.T) {
	var tally Tally
	for range 1000 {
		tally.Sent(0)
	}
	tally.Moved(0)
	of := func(n int) memnet.Traffic { return memnet.Traffic{Messages: n, Bytes: 100 * n} }
	require.Empty(t, tally.Waste(Traffic{Mail: of(2100), Probes: of(200), Markers: of(20), Rest: of(20)}, 3, time.Minute, 100))
	waste := tally.Waste(Traffic{Mail: of(4000), Probes: of(9000), Markers: of(1000), Rest: of(10_000)}, 3, time.Minute, 100)
	require.Len(t, waste, 5)
	require.Equal(t, "4000 messages were sent for 2000 hops and 1 moves, 3303 at the most were expected", waste[0])
}
