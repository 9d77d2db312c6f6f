package placement

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// What Others returns stays theirs: it may be a table that they keep.
func TestPinnedLeavesTheTableOfOthersAlone(t *testing.T) {
	table := []string{"i2", "i2"}
	p := Pinned{Hosts: map[int]string{0: "a"}, Others: StrategyFunc(func(View) []string { return table })}
	both := View{Hosts: []Host{{ID: "a", Incarnation: "i1", Capacity: 1}, {ID: "b", Incarnation: "i2", Capacity: 1}}, Owners: make([]string, 2)}
	require.Equal(t, []string{"i1", "i2"}, p.Target(both))
	require.Equal(t, []string{"i2", "i2"}, table)
	one := View{Hosts: both.Hosts[1:], Owners: both.Owners}
	require.Equal(t, []string{"i2", "i2"}, p.Target(one), "a is away")
}

// A View is the user's: no capacity makes Balanced panic.
func TestBalancedTakesAnyCapacity(t *testing.T) {
	for _, most := range []int{1 << 31, 1 << 60, math.MaxInt} {
		v := View{Hosts: []Host{{ID: "a", Incarnation: "i1", Capacity: most}, {ID: "b", Incarnation: "i2", Capacity: most}}, Owners: make([]string, 256)}
		require.NotPanics(t, func() {
			n := counts(Balanced{}.Target(v))
			require.Equal(t, map[string]int{"i1": 128, "i2": 128}, n, "%d", most)
		})
	}
}
