package directory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// The values are fixed for ever: records depend on them.
func TestShardOfIsStable(t *testing.T) {
	for _, x := range []struct {
		id     string
		shards int
		want   int
	}{
		{"", 1, 0}, {"", 256, 38}, {"a", 256, 91}, {"account/17", 256, 195}, {"account/18", 256, 255},
		{"account/17", 10000, 9235}, {"Ünïcödé", 1000, 473}, {"\x00\xff", 65536, 26808},
	} {
		require.Equal(t, x.want, ShardOf(x.id, x.shards), "%q of %d", x.id, x.shards)
	}
}

func TestShardOfSpreads(t *testing.T) {
	for _, kind := range []string{"account/%d", "%08d", "user-%x@example.org", "%d"} {
		const shards, ids = 256, 256 * 400
		count := make([]int, shards)
		for i := range ids {
			count[ShardOf(fmt.Sprintf(kind, i), shards)]++
		}
		for s, n := range count { // 400 on average: six deviations either way
			require.InDelta(t, 400, n, 120, "%s: shard %d", kind, s)
		}
	}
}
