package simulate

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/memnet"
)

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
