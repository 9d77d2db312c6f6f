package peer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestALedgerTellsLateFromLostAndTwice(t *testing.T) {
	k := keeper{Ledger: Ledger{Last: map[string]uint64{}, Missing: map[string][]uint64{}}}
	for _, n := range []uint64{1, 2, 5, 3} {
		k.take("a", n)
	}
	require.Equal(t, map[string]uint64{"a": 5}, k.Last)
	require.Equal(t, []uint64{4}, k.Missing["a"])
	require.Equal(t, []string{"a: 3 after 5, at token 0"}, k.Late)
	require.Empty(t, k.Wrong)
	k.take("a", 3)
	k.take("a", 5)
	require.Len(t, k.Wrong, 2, "each came twice")
	require.Len(t, k.Late, 1)
}
