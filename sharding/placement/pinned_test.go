package placement

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

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
