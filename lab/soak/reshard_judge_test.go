//go:build linux

package soak

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/sharding"
)

func TestExistencesAreJudged(t *testing.T) {
	own := sharding.ShardOf("e7", 8)
	began := func(at time.Duration) entry { return entry{at: at, kind: entityBegan, sender: 7, name: uint16(own)} }
	ended := func(at time.Duration) entry { return entry{at: at, kind: entityEnded, sender: 7, name: uint16(own)} }
	a, b := life{0, 0}, life{1, 0}

	first := existences(a, []entry{began(1), ended(5), began(6)}, 9)
	require.Equal(t, []existence{{7, own, a, 1, 5}, {7, own, a, 6, 9}}, first)
	require.Zero(t, twice(append(first, existences(b, []entry{began(9)}, 0)...)))
	require.Equal(t, 1, twice(append(first, existences(b, []entry{began(8)}, 0)...)), "before the process had died")
	require.Equal(t, 1, twice(append(existences(a, []entry{began(1)}, 0), existences(b, []entry{began(8)}, 0)...)))

	require.Zero(t, elsewhere(first, []epoch{{8, 0, 10}}))
	first[0].shard = (own + 1) % 8
	require.Equal(t, 1, elsewhere(first, []epoch{{8, 0, 10}}))
	require.Zero(t, elsewhere(first, []epoch{{8, 5, 10}}))
}
